# Functions of the scripts that build programs from Go modules into $to/bin. A script sets to before it reads this file.
# shellcheck shell=sh
mkdir -p "$to/bin" "$to/source"
export CGO_ENABLED=0 GOWORK=off

version() { # version FOLDER MODULE: the version in the go.mod of a folder
	go list -C "$1" -m -f '{{.Version}}' "$2"
}
missing() { # missing PROGRAM VERSION: links a program that exists, or prints that it is built
	if test -x "$to/bin/$1-$2"; then
		ln -sf "$1-$2" "$to/bin/$1"
		return 1
	fi
	echo "Building $1 $2 ..."
}
source_of() { # source_of MODULE@VERSION NAME: copies a module, so that its own go.mod selects the dependencies
	folder=$(cd "$to" && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)".*/\1/p')
	rm -rf "$to/source/$2"
	cp -r "$folder" "$to/source/$2"
	chmod -R u+w "$to/source/$2"
	rm -f "$to/source/$2/go.work" "$to/source/$2/go.work.sum"
}
build() { # build FOLDER PROGRAM VERSION PACKAGE [FLAG...]: the settings of the compiler are those of tools/build
	folder=$1 program=$2 number=$3 package=$4
	shift 4
	GOMAXPROCS=1 GOGC=off GOMEMLIMIT=1GiB go build -C "$folder" -p "$(nproc)" -buildvcs=false -trimpath "$@" -o "$to/bin/.building" "$package"
	mv "$to/bin/.building" "$to/bin/$program-$number"
	ln -sf "$program-$number" "$to/bin/$program"
}
kubernetes_flags() { # kubernetes_flags VERSION: linker flags, because the kubelet and the API server compare their versions when they start
	minor=${1#v1.}
	stamp=k8s.io/component-base/version
	echo "-s -w -X $stamp.gitVersion=$1 -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*} -X $stamp.gitTreeState=clean"
}
copy_programs() { # copy_programs ROOT PROGRAM...: copies installed programs with the libraries that they need
	under=$1
	shift
	for program in "$@"; do
		program=$(command -v "$program")
		for file in "$program" $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*'); do
			mkdir -p "$under$(dirname "$file")"
			cp -L "$file" "$under$file"
		done
	done
}
