#!/bin/sh
# Builds the judge of KubeVirt's objects: build.sh PROGRAM. Go's build cache makes a second call fast.
set -eu
case $1 in /*) program=$1 ;; *) program=$PWD/$1 ;; esac
cd "$(dirname "$0")/../../.."
RACE= exec go run -trimpath ./tools/build -title "KubeVirt's webhooks" -C tests/judges/kubevirt -o "$program" .
