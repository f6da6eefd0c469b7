#!/bin/sh
# Builds the judge of KubeVirt's objects, or with ./controller its virt-controller: build.sh PROGRAM [PACKAGE]. Go's build cache makes a
# second call fast.
set -eu
case $1 in /*) program=$1 ;; *) program=$PWD/$1 ;; esac
cd "$(dirname "$0")/../../.."
package=${2:-.}
title="KubeVirt's webhooks"
[ "$package" = . ] || title="KubeVirt's virt-controller"
RACE= exec go run -trimpath -gcflags=all=-dwarf=false ./tools/build -title "$title" -C tests/judges/kubevirt -o "$program" "$package"
