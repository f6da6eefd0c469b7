#!/bin/sh
# Builds the local engine: build.sh OUTPUT. The API server must be linked with its own version, because it compares
# versions when it starts; the version is the one of k8s.io/kubernetes in go.mod.
set -eu
case $1 in /*) output=$1 ;; *) output=$PWD/$1 ;; esac
cd "$(dirname "$0")"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v1.}
package=k8s.io/component-base/version
cd ../..
RACE= exec go run -trimpath -gcflags=all=-dwarf=false ./tools/build -title "kube-apiserver, etcd and the local engine" -C knative/local -o "$output" -ldflags "\
  -X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=${minor%%.*} \
  -X $package.gitTreeState=clean" .
