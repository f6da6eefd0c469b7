#!/bin/sh
# Builds the programs of a Talos node and of its cluster from their Go modules: build.sh DIRECTORY. The file name of a
# program has its version, and an existing file is not built again. The name without a version is a link to the file.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
engine=$here/../../knative/local
mkdir -p "$to/bin" "$to/source"
export CGO_ENABLED=0 GOWORK=off

version() { # version FOLDER MODULE: the version in the go.mod of a folder
	go list -C "$1" -m -f '{{.Version}}' "$2"
}
talos=$(version "$here/../.." github.com/siderolabs/talos/pkg/machinery)
kubernetes=$(version "$engine" k8s.io/kubernetes)
etcd=$(version "$engine" go.etcd.io/etcd/server/v3)
constants=$(go list -C "$here/../.." -m -f '{{.Dir}}' github.com/siderolabs/talos/pkg/machinery)/constants/constants.go
installed() { # installed CONSTANT: a version that this Talos has or installs
	sed -n "s/^\t$1 = \"v\{0,1\}\(.*\)\"$/v\1/p" "$constants"
}
containerd=$(installed DefaultContainerdVersion)
coredns=$(installed DefaultCoreDNSVersion)
# Talos installs 0.28.8. This is the next version whose module is available.
flannel=v0.28.10
patch=$(cksum <"$here/machined.patch" | cut -d ' ' -f 1)

missing() { # missing PROGRAM VERSION: links a program that exists, or prints that it is built
	if test -x "$to/bin/$1-$2"; then
		ln -sf "$1-$2" "$to/bin/$1"
		return 1
	fi
	echo "Building $1 $2 ..."
}
source_of() { # source_of MODULE@VERSION NAME: copies a module, so that its own go.mod selects the dependencies
	folder=$(cd "$to" && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)".*/\1/p')
	rm -rf "$to/source/$2"
	cp -r "$folder" "$to/source/$2"
	chmod -R u+w "$to/source/$2"
	rm -f "$to/source/$2/go.work" "$to/source/$2/go.work.sum"
}
build() { # build FOLDER PROGRAM VERSION PACKAGE [FLAG...]
	folder=$1 program=$2 number=$3 package=$4
	shift 4
	go build -C "$folder" -buildvcs=false -trimpath "$@" -o "$to/bin/.building" "$package"
	mv "$to/bin/.building" "$to/bin/$program-$number"
	ln -sf "$program-$number" "$to/bin/$program"
}

if missing machined "$talos-$patch" || missing talosctl "$talos"; then
	source_of "github.com/siderolabs/talos@$talos" talos
	# machinery is a module of its own. Two replacements are forks or versions that module proxies may lack.
	go mod edit -C "$to/source/talos" -dropreplace=github.com/siderolabs/talos/pkg/machinery \
		-replace=github.com/siderolabs/go-kubernetes=github.com/siderolabs/go-kubernetes@v0.2.36 \
		-replace=github.com/containerd/containerd/v2=github.com/containerd/containerd/v2@v2.2.3 \
		-replace=go.etcd.io/etcd/etcdutl/v3=go.etcd.io/etcd/etcdutl/v3@v3.6.14
	patch -s -d "$to/source/talos" -p1 <"$here/machined.patch"
	flags="-s -w -X golang.zx2c4.com/wireguard/ipc.socketDirectory=/system/wireguard-sock"
	build "$to/source/talos" machined "$talos-$patch" ./internal/app/machined -mod=mod -ldflags "$flags"
	build "$to/source/talos" talosctl "$talos" ./cmd/talosctl -mod=mod -ldflags "$flags"
fi

# The kubelet and the API server compare their versions when they start.
minor=${kubernetes#v1.}
stamp=k8s.io/component-base/version
flags="-s -w -X $stamp.gitVersion=$kubernetes -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*} -X $stamp.gitTreeState=clean"
for program in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet; do
	! missing $program "$kubernetes" || build "$engine" $program "$kubernetes" "k8s.io/kubernetes/cmd/$program" -ldflags "$flags"
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
if missing flanneld "$flannel"; then
	source_of "github.com/flannel-io/flannel@$flannel" flannel
	# VXLAN is the backend that Talos configures. These others need C, or modules that module proxies may lack.
	sed -i '/backend\/tencentvpc"/d; /backend\/alivpc"/d; /backend\/udp"/d' "$to/source/flannel/main.go"
	rm -rf "$to/source/flannel/pkg/backend/tencentvpc" "$to/source/flannel/pkg/backend/alivpc" "$to/source/flannel/pkg/backend/udp"
	build "$to/source/flannel" flanneld "$flannel" . -mod=mod -ldflags '-s -w'
fi
for program in pause cni node; do
	go build -C "$here" -trimpath -ldflags '-s -w' -o "$to/bin/$program" "./$program"
done
