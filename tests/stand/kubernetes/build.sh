#!/bin/sh
# Builds Kubernetes, etcd, containerd and CoreDNS from their Go modules: build.sh DIRECTORY. The file name of a program
# has its version, and an existing file is not built again. The name without a version is a link to the file.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
engine=$here/../../../knative/local
. "$here/functions.sh"

kubernetes=$(version "$engine" k8s.io/kubernetes)
etcd=$(version "$engine" go.etcd.io/etcd/server/v3)
constants=$(folder_of "$here/../../.." github.com/siderolabs/talos/pkg/machinery)/constants/constants.go
installed() { # installed CONSTANT: a version that Talos has or installs
	sed -n "s/^\t$1 = \"v\{0,1\}\(.*\)\"$/v\1/p" "$constants"
}
containerd=$(installed DefaultContainerdVersion)
coredns=$(installed DefaultCoreDNSVersion)

build "$engine" "$kubernetes" 'k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler
	k8s.io/kubernetes/cmd/kube-proxy k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kubectl' "$(kubernetes_flags "$kubernetes")"
build "$engine" "$etcd" etcd=go.etcd.io/etcd/server/v3 ''

if missing "$containerd" containerd containerd-shim-runc-v2; then
	source_of "github.com/containerd/containerd/v2@$containerd" containerd
	go mod edit -C "$to/source/containerd" -dropreplace=github.com/containerd/containerd/api
fi
build "$to/source/containerd" "$containerd" './cmd/containerd ./cmd/containerd-shim-runc-v2' '' -mod=mod -tags=no_btrfs,no_zfs,no_aufs,no_devmapper,no_tracing,no_rdt
! missing "$coredns" coredns || source_of "github.com/coredns/coredns@$coredns" coredns
build "$to/source/coredns" "$coredns" github.com/coredns/coredns '' -mod=mod
go build -C "$here/.." -trimpath -ldflags '-s -w' -o "$to/bin/pause" ./pause
