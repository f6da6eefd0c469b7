#!/bin/sh
# Builds the programs of a Talos node and of its cluster from their Go modules: build.sh DIRECTORY. The file name of a
# program has its version, and an existing file is not built again. The name without a version is a link to the file.
# Programs of Kubernetes, which other suites need too, are in the folder kubernetes beside DIRECTORY. upgrade.sh builds what
# make test-talos needs in addition.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
kubernetes=$(dirname "$to")/kubernetes
. "$here/../stand/kubernetes/functions.sh"
sh "$here/../stand/kubernetes/build.sh" "$kubernetes"
ln -sf "$kubernetes"/bin/* "$to/bin/"

talos=$(version "$here/../.." github.com/siderolabs/talos/pkg/machinery)
# Talos installs 0.28.8. This is the next version whose module is available.
flannel=v0.28.10
patch=$(cksum <"$here/machined.patch" | cut -d ' ' -f 1)

source=$to/source/talos-$talos-$patch
if ! test -f "$source/complete"; then
	source_of "github.com/siderolabs/talos@$talos" "talos-$talos-$patch"
	# machinery is a module of its own. Two replacements are forks or versions that module proxies may lack.
	go mod edit -C "$source" -dropreplace=github.com/siderolabs/talos/pkg/machinery \
		-replace=github.com/siderolabs/go-kubernetes=github.com/siderolabs/go-kubernetes@v0.2.36 \
		-replace=github.com/containerd/containerd/v2=github.com/containerd/containerd/v2@v2.2.3 \
		-replace=go.etcd.io/etcd/etcdutl/v3=go.etcd.io/etcd/etcdutl/v3@v3.6.14
	patch -s -d "$source" -p1 <"$here/machined.patch"
	touch "$source/complete"
fi
rm -rf "$to/source/talos"
ln -s "talos-$talos-$patch" "$to/source/talos"
build "$source" "$talos-$patch" './internal/app/machined talos-init=./internal/app/init' \
	'-X golang.zx2c4.com/wireguard/ipc.socketDirectory=/system/wireguard-sock' -mod=mod

if missing "$flannel" flanneld; then
	source_of "github.com/flannel-io/flannel@$flannel" flannel
	# VXLAN is the backend that Talos configures. These others need C, or modules that module proxies may lack.
	sed -i '/backend\/tencentvpc"/d; /backend\/alivpc"/d; /backend\/udp"/d' "$to/source/flannel/main.go"
	rm -rf "$to/source/flannel/pkg/backend/tencentvpc" "$to/source/flannel/pkg/backend/alivpc" "$to/source/flannel/pkg/backend/udp"
fi
build "$to/source/flannel" "$flannel" flanneld=github.com/flannel-io/flannel '' -mod=mod
go build -C "$here" -trimpath -ldflags '-s -w' -o "$to/bin/cni" ./cni
