package app

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestPreviewOfNetworks previews networks and images by NetworkPools, the networks of other namespaces and the settings
// of the functions, with the rights of the gateway as shipped.
func TestPreviewOfNetworks(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	whole, all := keyLine(t, "platform", "read")
	if err := os.WriteFile(keys, []byte(all+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startReal(t, "--auth.enabled=true", "--auth.keysFile="+keys, "--preview.networkPools=required", "--preview.imageHosts=images.example.com", "--preview.talosVersion=1.12.4")
	limited, line := limitedKey(t, "tenant", "read", s.namespace)
	if err := os.WriteFile(keys, []byte(line+"\n"+all+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	resource := func(version, name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "vitistack.io", Version: version, Resource: name}
	}
	s.create(resource("v1alpha1", "networkpools"), "", "apiVersion: vitistack.io/v1alpha1\nkind: NetworkPool\nmetadata: {name: "+s.namespace+
		"}\nspec: {vlans: ['2300-2309'], shareVLANs: true, allowedNamespaces: {selector: {matchLabels: {kubernetes.io/metadata.name: "+s.namespace+"}}}}\n")
	network := func(name, namespace, segment string) string {
		return "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: " + name + ", namespace: " + namespace +
			"}\nspec: {datacenterIdentifier: no-west-az1, supervisorIdentifier: shop, networkProvisioning: {provider: manual, manual: {" + segment + "}}, ipAllocation: {type: static}}\n"
	}
	prod := s.namespace + "-prod"
	s.create(resource("v1alpha2", "networknamespaces"), "default", network(prod, "default", "ipv4CIDR: 10.231.0.0/24, vlanId: 2301"))
	asks := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	eventually(t, "the gateway to see the network", func() bool {
		return strings.Contains(string(s.do(http.MethodGet, "/api/v1/networks?namespace=default&limit=100", "", asks(whole)...).body), prod)
	})
	eventually(t, "the key of the tenant", func() bool {
		return s.do(http.MethodGet, "/api/v1/machines", "", asks(limited)...).StatusCode == http.StatusOK
	})
	machine := func(image string) string {
		return "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: web, namespace: " + s.namespace + "}\nspec: {template: small, os: {imageID: '" + image + "'}}\n"
	}
	cluster := "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: shop, namespace: " + s.namespace + "}\nspec: {data: {}, networkNamespaceName: lab, networking: {podCIDR: 10.232.0.0/16}, topology: {version: '1.33', controlplane: {replicas: 1, template: small}}}\n"
	own := func(segment string) string { return network("lab", s.namespace, segment) }
	for name, tc := range map[string]struct {
		reason, body, key string
		want              []string
		not               string
	}{
		"Free":     {reason: "the pool has the VLAN, and no other network has the prefix", body: own("ipv4CIDR: 10.232.0.0/24, vlanId: 2302"), key: whole, want: []string{`"valid":true`}, not: `"note"`},
		"Overlap":  {reason: "a network of another namespace has it", body: own("ipv4CIDR: 10.231.0.128/25, vlanId: 2301"), key: whole, want: []string{`"valid":false`, `"reason":"SegmentOverlap"`, "NetworkNamespace default/" + prod}},
		"Tenant":   {reason: "a caller who is limited sees no other namespace", body: own("ipv4CIDR: 10.231.0.128/25, vlanId: 2301"), key: limited, want: []string{`"valid":true`, "not checked before the apply: whether a network of another namespace has the segment"}, not: prod},
		"Pool":     {reason: "the pool of the namespace has other VLANs", body: own("ipv4CIDR: 10.232.0.0/24, vlanId: 2310"), key: limited, want: []string{`"reason":"NotInPool"`, "use what one NetworkPool allows (", s.namespace + ": VLANs 2300-2309"}},
		"NoPool":   {reason: "no pool selects the namespace", body: strings.Replace(own("ipv4CIDR: 10.232.0.0/24, vlanId: 2302"), "namespace: "+s.namespace, "namespace: kube-system", 1), key: whole, want: []string{`"reason":"NotInPool"`}},
		"Image":    {reason: "the host is not allowed", body: machine("https://elsewhere.example.com/a.qcow2"), key: limited, want: []string{`"reason":"ImageNotAllowed"`, "/spec/os/imageID", "elsewhere.example.com"}},
		"Listed":   {reason: "the host is allowed", body: machine("https://images.example.com/a.qcow2"), key: limited, want: []string{`"valid":true`}},
		"Factory":  {reason: "the image factory is allowed", body: machine("https://factory.talos.dev/a.qcow2"), key: limited, want: []string{`"valid":true`}},
		"Both":     {reason: "the network of the same file has the addresses of pods", body: own("ipv4CIDR: 10.232.0.0/24, vlanId: 2302") + "---\n" + cluster, key: whole, want: []string{`"reason":"NetworkOverlap"`, "podCIDR 10.232.0.0/16 overlaps 10.232.0.0/24"}},
		"Talos":    {reason: "the Talos version of the installation decides", body: strings.Replace(strings.Replace(cluster, "1.33", "1.36", 1), "lab", "none", 1), key: whole, want: []string{`"reason":"KubernetesVersionNotSupported"`, "1.12.4"}},
		"Existing": {reason: "the pool exists", body: "apiVersion: vitistack.io/v1alpha1\nkind: NetworkPool\nmetadata: {name: " + s.namespace + "}\nspec: {vlans: ['2300-2310'], shareVLANs: true}\n", key: whole, want: []string{`"action":"change"`, `"field":"vlans"`}},
	} {
		r := s.do(http.MethodPost, "/api/v1/preview", tc.body, asks(tc.key)...)
		text := string(r.body)
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s: %s", name, tc.reason, r.Status)
		}
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %s: %s is missing in %s", name, tc.reason, want, text)
			}
		}
		if tc.not != "" && strings.Contains(text, tc.not) {
			t.Errorf("%s: %s: %s is in %s", name, tc.reason, tc.not, text)
		}
	}
}
