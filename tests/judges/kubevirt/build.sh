#!/bin/sh
# Builds the judge of KubeVirt's objects: build.sh PROGRAM. Go's build cache makes a second call fast.
set -eu
case $1 in /*) program=$1 ;; *) program=$PWD/$1 ;; esac
cd "$(dirname "$0")"
test -x "$program" || echo "Building KubeVirt's webhooks, which takes some minutes the first time ..."
CGO_ENABLED=0 exec go build -trimpath -ldflags '-s -w' -o "$program" .
