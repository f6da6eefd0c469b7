package talos

import (
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config"
	documents "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// manifestResources returns those manifests that a control plane renders from settings of its configuration which
// tests change: the inline manifests, and the DaemonSet of kube-proxy (k8stemplates.KubeProxyDaemonSetTemplate).
func manifestResources(cfg config.Provider) []resource.Resource {
	var all []resource.Resource
	for _, inline := range cfg.Cluster().InlineManifests() {
		manifest := k8s.NewManifest(k8s.ControlPlaneNamespaceName, "99-"+inline.Name())
		for _, document := range workload.Documents(inline.Contents()) {
			var object map[string]any
			if err := yaml.Unmarshal([]byte(document), &object); err == nil && object != nil {
				manifest.TypedSpec().Items = append(manifest.TypedSpec().Items, k8s.SingleManifest{Object: object})
			}
		}
		all = append(all, manifest)
	}
	if proxy := cfg.Cluster().Proxy(); proxy.Enabled() {
		manifest := k8s.NewManifest(k8s.ControlPlaneNamespaceName, "10-kube-proxy")
		manifest.TypedSpec().Items = []k8s.SingleManifest{{Object: proxyManifest(proxy)}}
		all = append(all, manifest)
	}
	return all
}

func proxyManifest(proxy documents.Proxy) map[string]any {
	command := []any{"/usr/local/bin/kube-proxy", "--proxy-mode=" + proxy.Mode()}
	var args []string
	for name, values := range proxy.ExtraArgs() {
		for _, value := range values {
			args = append(args, "--"+name+"="+value)
		}
	}
	slices.Sort(args)
	for _, arg := range args {
		command = append(command, arg)
	}
	labels := map[string]any{"k8s-app": "kube-proxy", "tier": "node"}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "DaemonSet",
		"metadata": map[string]any{"name": "kube-proxy", "namespace": "kube-system", "labels": labels},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"k8s-app": "kube-proxy"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "kube-proxy", "image": proxy.Image(), "command": command}}},
			},
		},
	}
}

// stepManifests creates the objects of the inline manifests that do not exist. Talos changes none that exists, and
// deletes none: manifest_apply.go in internal/app/machined/pkg/controllers/k8s.
func (c *cluster) stepManifests() {
	for _, n := range c.controlPlanes() {
		if n.boot.created == n.clusterSection {
			continue
		}
		n.boot.created = n.clusterSection
		for _, inline := range n.config.Cluster().InlineManifests() {
			if err := c.workload.CreateMissing(inline.Contents()); err != nil {
				c.fleet.log.Error("create an inline manifest", "cluster", c.Key, "manifest", inline.Name(), "error", err)
			}
		}
	}
}
