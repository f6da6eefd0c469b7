#!/bin/sh
# Builds the programs of Knative and kube-router from their Go modules, and lays out images and manifests: build.sh DIRECTORY EVENTING.
# Programs of Kubernetes are in the folder kubernetes beside DIRECTORY, Helm in bin, and Knative Eventing in EVENTING. The file name of a
# program has its version, and an existing file is not built again.
set -eu
to=$1 eventing=$2
kubernetes=$(dirname "$to")/kubernetes
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../../..
. "$here/../kubernetes/functions.sh"
# Knative Serving is released together with Eventing.
knative=$(version "$root/knative/local" knative.dev/eventing)
serving=$to/source/serving-$knative

sh "$here/../kubernetes/build.sh" "$kubernetes"
sh "$root/tests/knative/build.sh" "$eventing"
test -f "$serving/go.mod" || source_of "knative.dev/serving@$knative" "serving-$knative"
build "$serving" "$knative" 'serving-activator=./cmd/activator serving-autoscaler=./cmd/autoscaler serving-controller=./cmd/controller serving-queue=./cmd/queue
	serving-webhook=./cmd/webhook' '' -mod=mod
# kube-router enforces NetworkPolicies. The newest version in the Go module proxy.
router=v2.1.0
! missing $router kube-router || source_of github.com/cloudnativelabs/kube-router/v2@$router kube-router
build "$to/source/kube-router" $router ./cmd/kube-router '' -mod=mod
crane=$(version "$root/tools/ship" github.com/google/go-containerregistry)
build "$root/tools/ship" "$crane" github.com/google/go-containerregistry/cmd/crane ''
compile '' -title 'the ingress and the simulators' -C "$root" -o "$to/bin/" ./tests/stand/knative/ingress ./tests/sim
ln -sf "$kubernetes"/bin/* "$(dirname "$to")/bin/helm" "$to/bin/"

# A folder of images becomes an image of one program. The registry serves them.
rm -rf "$to/images"
place() { # place FILE IMAGE PROGRAM
	mkdir -p "$to/images/$2/ko-app"
	ln -L "$1" "$to/images/$2/ko-app/$3" 2>/dev/null || cp -L "$1" "$to/images/$2/ko-app/$3"
}
for program in pause coredns ingress; do place "$to/bin/$program" "$program" "$program"; done
for command in activator autoscaler controller queue webhook; do place "$to/bin/serving-$command" "serving-$command" "$command"; done
for program in "$eventing"/*; do place "$program" "eventing-${program##*/}" "${program##*/}"; done

# The manifests of the releases. A module has no symbolic links: the CRDs of networking and caching come from their modules.
networking=$(folder_of "$serving" knative.dev/networking) caching=$(folder_of "$serving" knative.dev/caching)
core=$serving/config/core
source=$(folder_of "$root/knative/local" knative.dev/eventing)/config
mkdir -p "$to/manifests"
manifest() { # manifest NAME FILE|FOLDER...: all files with images of the registry, and without HorizontalPodAutoscalers
	name=$1
	shift
	find "$@" -name '*.yaml' ! -name '*hpa.yaml' | sort | while read -r file; do
		echo ---
		# Two cores cannot reserve what a production cluster has: 1.4 cores for Knative alone.
		sed -e "s#ko://knative.dev/serving/cmd/\([a-z]*\)#REGISTRY/serving-\1:$knative#" \
			-e "s#ko://knative.dev/eventing/cmd/\([a-z_]*/\)\{0,1\}\([a-z_]*\)#REGISTRY/eventing-\2:$knative#" "$file" |
			awk '/requests:/ { r = 1 } /limits:/ { r = 0 } r && /cpu:/ { sub(/[0-9]+m/, "10m"); r = 0 } { print }'
	done >"$to/manifests/$name.yaml"
}
manifest serving-crds "$core/300-resources" "$networking"/config/certificate.yaml "$networking"/config/domain-claim.yaml \
	"$networking"/config/ingress.yaml "$networking"/config/serverlessservice.yaml "$caching/config/image.yaml"
manifest serving "$core/100-namespace.yaml" "$core/200-roles" "$core/200-serviceaccount.yaml" "$core/configmaps" "$networking/config/config-network.yaml" \
	"$core/deployments" "$core/webhooks"
# These pass a webhook of Serving.
manifest serving-objects "$core/300-knativecertificate.yaml" "$core/999-cache.yaml"
manifest eventing-crds "$source/core/resources" "$source/channels/in-memory-channel/resources"
# job-sink and request-reply are not needed, and are left out.
manifest eventing "$source/core/100-namespace.yaml" "$source"/core/200-*.yaml "$source/core/roles" "$source/core/configmaps" \
	"$source/../third_party/eventing-integrations-latest" "$source/core/deployments/controller.yaml" "$source/core/deployments/webhook.yaml" \
	"$source/core/deployments/pingsource-mt-adapter.yaml" "$source/core/webhooks" "$source/channels/in-memory-channel/configmaps" \
	"$source"/channels/in-memory-channel/200-*.yaml "$source/channels/in-memory-channel/deployments" "$source/channels/in-memory-channel/roles" \
	"$source/channels/in-memory-channel/webhooks" "$source/brokers/mt-channel-broker"
