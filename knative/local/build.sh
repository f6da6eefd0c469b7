#!/bin/sh
# Builds the local engine: build.sh OUTPUT. The API server must be linked with its own version, because it compares
# versions when it starts; the version is the one of k8s.io/kubernetes in go.mod.
#
# go build takes seconds to find that none of 2,500 packages has changed. OUTPUT.built has a checksum of the sources and the time
# of the program, and while both match nothing is built.
set -eu
case $1 in /*) output=$1 ;; *) output=$PWD/$1 ;; esac
cd "$(dirname "$0")"
describe() {
	{ go env GOVERSION GOOS GOARCH GOFLAGS && find . ../../tools/build -type f ! -name '*_test.go' | LC_ALL=C sort | xargs sha256sum; } | sha256sum
	ls -l --full-time "$output"
}
[ ! -x "$output" ] || [ "$(cat "$output.built" 2> /dev/null)" != "$(describe)" ] || exit 0
[ -e "$output" ] || echo "Compiling Kubernetes, which takes minutes the first time. Progress follows ..." >&2
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
package=k8s.io/component-base/version
cd ../..
RACE= go run -trimpath -gcflags=all=-dwarf=false ./tools/build -title "kube-apiserver, etcd and the local engine" -C knative/local -o "$output" -ldflags "\
  -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} \
  -X $package.gitTreeState=clean" .
cd knative/local
describe > "$output.built"
