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
constants=$(go list -C "$here/../../.." -m -f '{{.Dir}}' github.com/siderolabs/talos/pkg/machinery)/constants/constants.go
installed() { # installed CONSTANT: a version that Talos has or installs
	sed -n "s/^\t$1 = \"v\{0,1\}\(.*\)\"$/v\1/p" "$constants"
}
containerd=$(installed DefaultContainerdVersion)
coredns=$(installed DefaultCoreDNSVersion)

for program in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do
	! missing $program "$kubernetes" || build "$engine" $program "$kubernetes" "k8s.io/kubernetes/cmd/$program" -ldflags "$(kubernetes_flags "$kubernetes")"
done
! missing etcd "$etcd" || build "$engine" etcd "$etcd" go.etcd.io/etcd/server/v3 -ldflags '-s -w'

if missing containerd "$containerd" || missing containerd-shim-runc-v2 "$containerd"; then
	source_of "github.com/containerd/containerd/v2@$containerd" containerd
	go mod edit -C "$to/source/containerd" -dropreplace=github.com/containerd/containerd/api
	for program in containerd containerd-shim-runc-v2; do
		build "$to/source/containerd" $program "$containerd" "./cmd/$program" -mod=mod -tags 'no_btrfs no_zfs no_aufs no_devmapper no_tracing no_rdt' -ldflags '-s -w'
	done
fi
if missing coredns "$coredns"; then
	source_of "github.com/coredns/coredns@$coredns" coredns
	build "$to/source/coredns" coredns "$coredns" . -mod=mod -ldflags '-s -w'
fi
go build -C "$here/.." -trimpath -ldflags '-s -w' -o "$to/bin/pause" ./pause
