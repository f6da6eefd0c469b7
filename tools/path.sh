#!/bin/sh
# Prints PATH with a Go that is new enough for go.mod: path.sh CACHE. An older Go, such as the one of Debian 12, downloads the
# version in go.mod as a module, so that the checksum database of Go verifies it.
set -eu
needed=$(sed -n 's/^go //p' "$(dirname "$0")/../go.mod")
if ! command -v go > /dev/null; then
	echo "Go is not installed. Run apt-get install golang-go: any version since 1.13 downloads Go $needed." >&2
	exit 1
fi
own=$(GOTOOLCHAIN=local go version | cut -d ' ' -f 3)
case $own in
devel) oldest=$needed ;;
*) oldest=$(printf '%s\n%s\n' "$needed" "${own#go}" | sort -V | head -n 1) ;;
esac
if [ "$oldest" = "$needed" ]; then
	echo "$PATH"
	exit
fi
folder=$1/go/$needed
if [ ! -x "$folder/bin/go" ]; then
	platform=$(go env GOOS)-$(go env GOARCH)
	echo "Go ${own#go} is too old. Downloading Go $needed, about 70 MB, into $folder ..." >&2
	mkdir -p "$1/go"
	new=$(mktemp -d "$1/go/new-XXXXXX")
	module=$(cd "$new" && GOTOOLCHAIN=local GOFLAGS= GO111MODULE=on go mod download -json "golang.org/toolchain@v0.0.1-go$needed.$platform" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	if [ -z "$module" ]; then
		rm -r "$new"
		echo "Go $needed cannot be downloaded: install it from https://go.dev/dl, or set GOPROXY to a module proxy that can be reached." >&2
		exit 1
	fi
	cp -R "$module/." "$new"
	chmod -R u+w "$new"
	# A Go before 1.21 extracts modules without the permission to execute.
	chmod +x "$new"/bin/* "$new"/pkg/tool/*/*
	mv "$new" "$folder"
fi
echo "$folder/bin:$PATH"
