package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/manifest"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	k, err := manifest.Cluster{
		Name: "shop", Namespace: "commerce", Version: "1.34", ControlPlanes: 3, Workers: []string{"workers=2", "gpu=1:large"}, Network: "commerce-network", Provider: "kubevirt",
		Data: v1alpha1.ClusterData{Environment: "prod"}, Protected: true,
	}.Object()
	if err != nil {
		t.Fatal(err)
	}
	content, err := manifest.Content(k)
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata:
  name: shop
  namespace: commerce
spec:
  data:
    environment: prod
  networkNamespaceName: commerce-network
  protected: true
  topology:
    controlplane:
      providerRef:
        name: kubevirt
      replicas: 3
    version: "1.34"
    workers:
    - name: workers
      providerRef:
        name: kubevirt
      replicas: 2
    - name: gpu
      providerRef:
        name: kubevirt
      replicas: 1
      template: large
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestClusterWithClass(t *testing.T) {
	t.Parallel()
	class := v1alpha1.MachineClass{}
	class.Name = "gpu-xl"
	for name, tc := range map[string]struct {
		because string
		change  func(*manifest.Cluster)
		needs   bool
		message string
	}{
		"BuiltIn": {"it needs no object", func(c *manifest.Cluster) { c.Workers = []string{"a=1", "b=1:large"} }, false, ""},
		"Pool":    {"it exists", func(c *manifest.Cluster) { c.Workers = []string{"a=1:gpu-xl"} }, true, ""},
		"Planes":  {"it exists", func(c *manifest.Cluster) { c.ControlPlaneTemplate = "gpu-xl" }, true, ""},
		"Other":   {"the names that exist are listed", func(c *manifest.Cluster) { c.Workers = []string{"a=1:huge"} }, true, "--workers a=1:huge: template \"huge\" does not exist: write small, medium, large or gpu-xl"},
		"Offline": {"nothing is known of MachineClasses", func(c *manifest.Cluster) { c.Workers, c.Classes, c.AnyClass = []string{"a=1:huge"}, nil, true }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := manifest.Cluster{Name: "shop", Version: "1.34", ControlPlanes: 1, Classes: []v1alpha1.MachineClass{class}}
			tc.change(&c)
			if got := c.NeedsClasses(); got != tc.needs {
				t.Errorf("%s: needs MachineClasses: %t, want %t", tc.because, got, tc.needs)
			}
			_, err := c.Object()
			if (err == nil) != (tc.message == "") || (err != nil && !strings.Contains(err.Error(), tc.message)) {
				t.Errorf("%s: got %v, want %q", tc.because, err, tc.message)
			}
		})
	}
}

func TestClusterErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because string
		change  func(*manifest.Cluster)
		message string
	}{
		"Name":      {"it becomes a host name", func(c *manifest.Cluster) { c.Name = "Shop" }, "beginning with a letter"},
		"Even":      {"two members lose their majority with one", func(c *manifest.Cluster) { c.ControlPlanes = 2 }, "--control-planes 2: write 1, 3, 5 or 7"},
		"Version":   {"it has not been released", func(c *manifest.Cluster) { c.Version = "1.99" }, "--version 1.99"},
		"Pool":      {"it has no number", func(c *manifest.Cluster) { c.Workers = []string{"workers"} }, "write NAME=REPLICAS"},
		"Negative":  {"there are no fewer than none", func(c *manifest.Cluster) { c.Workers = []string{"workers=-1"} }, "0 to 500"},
		"Template":  {"it does not exist", func(c *manifest.Cluster) { c.Workers = []string{"workers=1:huge"} }, "write small, medium or large"},
		"Planes":    {"it does not exist", func(c *manifest.Cluster) { c.ControlPlaneTemplate = "huge" }, "write small, medium or large"},
		"SameNames": {"machines would have the same names", func(c *manifest.Cluster) { c.Workers = []string{"a=1", "a=2"} }, "a name of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := manifest.Cluster{Name: "shop", Version: "1.34", ControlPlanes: 1}
			tc.change(&c)
			if _, err := c.Object(); err == nil || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%s: got %v, want an error with %q", tc.because, err, tc.message)
			}
		})
	}
}
