#!/bin/sh
# Builds what make test-talos needs beside a node of Talos and its cluster: talosctl, the program that starts a node, and the
# programs and images of an upgrade: upgrade.sh DIRECTORY, after build.sh and rootfs.sh.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
engine=$here/../../knative/local
. "$here/../stand/kubernetes/functions.sh"

go build -C "$here" -trimpath -ldflags '-s -w' -o "$to/bin/node" ./node
number=$(readlink "$to/bin/machined")
build "$to/source/talos" "${number#machined-}" ./cmd/talosctl '' -mod=mod

# The programs of an upgrade have the same code with the next version, and the images differ in their program.
kubernetes=$(version "$engine" k8s.io/kubernetes)
next=${kubernetes%.*}.$((${kubernetes##*.} + 1))
images=$to/images
upgraded=$to/upgraded
programs=''
for program in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet; do
	programs="$programs upgraded-$program=k8s.io/kubernetes/cmd/$program"
done
build "$engine" "$next" "$programs" "$(kubernetes_flags "$next")"
rm -rf "$upgraded"
mkdir "$upgraded"
for program in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet; do
	cp -al "$images/$program" "$upgraded/$program"
	rm "$upgraded/$program/usr/local/bin/$program"
	ln -L "$to/bin/upgraded-$program" "$upgraded/$program/usr/local/bin/$program"
done
