#!/bin/sh
# Builds Knative Eventing's own programs: build.sh DIRECTORY. It does nothing if they exist. The version is the one of
# knative.dev/eventing in the go.mod of the local engine.
set -eu
to=$1
cd "$(dirname "$0")/../.."
engine=knative/local
version=$(go list -C $engine -m -f '{{.Version}}' knative.dev/eventing)
missing=''
# shellcheck disable=SC2046
set -- $(go list -C $engine tool | grep '^knative.dev/eventing/cmd/')
for program; do test -x "$to/${program##*/}" || missing=yes; done
test -n "$missing" || exit 0
RACE= go run -trimpath -gcflags=all=-dwarf=false ./tools/build -title "Knative Eventing $version" -C $engine -o "$to/.built/" "$@"
mv "$to/.built"/* "$to"
rmdir "$to/.built"
