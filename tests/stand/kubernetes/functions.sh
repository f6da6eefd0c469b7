# Functions of the scripts that build programs from Go modules into $to/bin. A script sets to before it reads this file.
# shellcheck shell=sh
mkdir -p "$to/bin" "$to/source"
export CGO_ENABLED=0 GOWORK=off RACE=

compile() { # compile FLAGS ARGUMENT...: runs tools/build with its arguments. FLAGS are for the go command
	added=$1
	shift
	go build -C "${here%/tests/*}" -trimpath -gcflags=all=-dwarf=false -o "$to/bin/.build" ./tools/build
	GOFLAGS="${GOFLAGS-} $added" "$to/bin/.build" "$@"
}
version() { # version FOLDER MODULE: the version in the go.mod of a folder
	go list -C "$1" -m -f '{{.Version}}' "$2"
}
folder_of() { # folder_of FOLDER MODULE[@VERSION]: downloads a module, in the version of the go.mod of a folder if there is none, and prints its folder
	go mod download -C "$1" -json "$2" | sed -n 's/^\t"Dir": "\(.*\)".*/\1/p'
}
missing() { # missing VERSION PROGRAM...: whether one of the programs does not exist in the version
	release=$1
	shift
	for name; do test -x "$to/bin/$name-$release" || return 0; done
	return 1
}
source_of() { # source_of MODULE@VERSION NAME: copies a module, so that its own go.mod selects the dependencies
	folder=$(folder_of "$to" "$1")
	rm -rf "$to/source/$2"
	cp -r "$folder" "$to/source/$2"
	chmod -R u+w "$to/source/$2"
	rm -f "$to/source/$2/go.work" "$to/source/$2/go.work.sum"
}
# build FOLDER VERSION '[PROGRAM=]PACKAGE...' LINKERFLAGS [FLAG...]: builds the programs that do not exist in the version, and links the name of each
# to it. One call compiles some while it links others.
build() {
	folder=$1 version=$2 programs=$3 linked=$4 packages='' names=''
	shift 4
	for program in $programs; do
		name=${program%%=*}
		missing "$version" "${name##*/}" || continue
		packages="$packages ${program#*=}" names="$names ${name##*/}"
	done
	if test -n "$packages"; then
		rm -rf "$to/bin/.built"
		# shellcheck disable=SC2086
		compile "-buildvcs=false $*" -title "${names# } $version" -C "$folder" -o "$to/bin/.built/" -ldflags "$linked" $packages
	fi
	for program in $programs; do
		name=${program%%=*} package=$(echo "${program#*=}" | sed 's#/v[0-9]*$##')
		name=${name##*/}
		! test -e "$to/bin/.built/${package##*/}" || mv "$to/bin/.built/${package##*/}" "$to/bin/$name-$version"
		ln -sf "$name-$version" "$to/bin/$name"
	done
}
kubernetes_flags() { # kubernetes_flags VERSION: linker flags, because the kubelet and the API server compare their versions when they start
	minor=${1#v1.}
	stamp=k8s.io/component-base/version
	echo "-X $stamp.gitVersion=$1 -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*} -X $stamp.gitTreeState=clean"
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
