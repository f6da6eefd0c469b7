#!/bin/sh
# Builds KubeVirt, CDI and Multus from their Go modules, and writes the manifests of their operators: build.sh DIRECTORY. Programs of
# Kubernetes are in the folder kubernetes beside DIRECTORY. The file name of a program has its version, and an existing file
# is not built again.
set -eu
to=$1
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
kubernetes=$(dirname "$to")/kubernetes
. "$here/../stand/kubernetes/functions.sh"
sh "$here/../stand/kubernetes/build.sh" "$kubernetes"
ln -sf "$kubernetes"/bin/* "$to/bin/"

kubevirt=$(version "$root/tests/judges/kubevirt" kubevirt.io/kubevirt)
number=$kubevirt-$(cksum <"$here/kubevirt.patch" | cut -d ' ' -f 1)
source=$to/source/kubevirt-$number
# KubeVirt's own go.mod selects the dependencies, except for its two modules in its own repository.
if ! test -f "$source/complete"; then
	source_of "kubevirt.io/kubevirt@$kubevirt" "kubevirt-$number"
	go mod edit -C "$source" -dropreplace=kubevirt.io/api -dropreplace=kubevirt.io/client-go \
		-require="kubevirt.io/api@$kubevirt" -require="kubevirt.io/client-go@$kubevirt"
	patch -s -d "$source" -p1 <"$here/kubevirt.patch"
	# Module proxies lack libnbd. Only backups of disks need it.
	go mod edit -C "$source" -droprequire=libguestfs.org/libnbd
	cat >"$source/pkg/virt-launcher/virtwrap/storage/nbd_client.go" <<'EOF'
package storage

import (
	"errors"

	nbdv1 "kubevirt.io/kubevirt/pkg/storage/cbt/nbd/v1"
)

var errNoNBD = errors.New("virt-launcher is built without libnbd")

type NBDClient struct{}

func NewNBDClient(string) *NBDClient { return &NBDClient{} }

func (*NBDClient) Map(*nbdv1.MapRequest, nbdv1.NBD_MapServer) error { return errNoNBD }

func (*NBDClient) Read(*nbdv1.ReadRequest, nbdv1.NBD_ReadServer) error { return errNoNBD }
EOF
	touch "$source/complete"
fi
ln -sfn "kubevirt-$number" "$to/source/kubevirt"
flags="-X kubevirt.io/client-go/version.gitVersion=$kubevirt"
build "$source" "$number" './cmd/virt-operator ./cmd/virt-api ./cmd/virt-controller ./cmd/virt-chroot ./cmd/virt-launcher-monitor ./cmd/virt-probe ./cmd/virt-freezer
	./cmd/virt-tail ./tools/manifest-templator' "$flags" -mod=mod
# virt-handler asks the kernel about KVM in C. virt-launcher loads Debian's libvirt when it starts, and needs none to be built.
(
	export CGO_ENABLED=1
	build "$source" "$number" './cmd/virt-handler ./cmd/virt-launcher' "$flags" -mod=mod -tags=libvirt_dlopen
)
! missing "$number" container-disk || cc -O2 -static -o "$to/bin/container-disk-$number" "$source/cmd/container-disk-v2alpha/main.c"
ln -sf "container-disk-$number" "$to/bin/container-disk"
mkdir -p "$to/manifests"
# The release has its RBAC and CRD as templates too: they are processed after they were inserted.
"$to/bin/manifest-templator" --process-files --generated-manifests-dir "$source/manifests/generated" \
	--input-file "$source/manifests/release/kubevirt-operator.yaml.in" >"$to/manifests/operator.in"
"$to/bin/manifest-templator" --process-vars --namespace kubevirt --container-prefix REGISTRY --container-tag "$kubevirt" \
	--kubevirt-logo-path "$source/LICENSE" --input-file "$to/manifests/operator.in" >"$to/manifests/operator.yaml"

# The newest version of CDI in the Go module proxy.
cdi=v1.61.1
source=$to/source/cdi-$cdi
if ! test -f "$source/complete"; then
	source_of kubevirt.io/containerized-data-importer@$cdi cdi-$cdi
	api=kubevirt.io/containerized-data-importer-api
	go mod edit -C "$source" -dropreplace=$api -require=$api@$cdi
	# Module proxies lack libnbd. Only imports from VMware need it, which other processors lack too.
	go mod edit -C "$source" -droprequire=libguestfs.org/libnbd
	sed "/build arm64/d" "$source/pkg/importer/vddk-datasource_arm64.go" >"$source/pkg/importer/vddk-datasource_amd64.go"
	touch "$source/complete"
fi
build "$source" $cdi './cmd/cdi-operator ./cmd/cdi-apiserver ./cmd/cdi-controller ./cmd/cdi-uploadproxy ./cmd/cdi-importer cdi-manifest-generator=./tools/manifest-generator' '' \
	-mod=mod -tags=containers_image_openpgp
images=''
for name in operator controller importer cloner apiserver uploadproxy uploadserver; do images="$images -$name-image=REGISTRY/cdi-$name:$cdi"; done
# shellcheck disable=SC2086
"$to/bin/cdi-manifest-generator" -resource-type=operator -resource-group=everything -operator-version=$cdi -deploy-cluster-resources=true $images \
	-ovirt-populator-image=REGISTRY/none:$cdi -pull-policy=IfNotPresent -namespace=cdi >"$to/manifests/cdi.yaml"

# The newest version of Multus in the Go module proxy.
multus=v4.2.2
! missing $multus multus || source_of gopkg.in/k8snetworkplumbingwg/multus-cni.v4@$multus multus
build "$to/source/multus" $multus ./cmd/multus '' -mod=mod
