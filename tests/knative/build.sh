#!/bin/sh
# Builds Knative Eventing's own programs: build.sh DIRECTORY. Existing programs are not built again. The version is
# the one of knative.dev/eventing in the go.mod of the local engine.
set -eu
to=$1
cd "$(dirname "$0")/../../knative/local"
version=$(go list -m -f '{{.Version}}' knative.dev/eventing)
programs=$(go list tool | grep '^knative.dev/eventing/cmd/')
number=0
total=$(echo "$programs" | wc -l)
mkdir -p "$to"
for program in $programs; do
	number=$((number + 1))
	test -x "$to/${program##*/}" && continue
	echo "Building Knative Eventing $version: ${program#knative.dev/eventing/cmd/} ($number of $total) ..."
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$to/.building" "$program"
	mv "$to/.building" "$to/${program##*/}"
done
