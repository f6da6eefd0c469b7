package manifests

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestNewMachine(t *testing.T) {
	t.Parallel()
	kc := example(t)
	kc.UID = "uid"
	p, err := plan.Make(kc, nil, plan.DefaultTalosVersion)
	if err != nil {
		t.Fatal(err)
	}
	m := NewMachine(kc, p, p.Members[1], "https://images.example.com/talos.raw.xz", "net")
	want := map[string]string{
		"cluster.vitistack.io/cluster-name": "simple-cluster", "cluster.vitistack.io/role": "worker", "cluster.vitistack.io/worker-group": "worker-pool-1",
		"vitistack.io/clusterid": "simple-cluster-id", "vitistack.io/node-role": "worker", "vitistack.io/machine-template": "medium", "vitistack.io/managed-by": "bootstrap-talos",
	}
	if diff := cmp.Diff(want, m.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if m.Spec.NetworkNamespaceName != "net" {
		t.Errorf("network: got %q, want net", m.Spec.NetworkNamespaceName)
	}
	if o := m.OwnerReferences; len(o) != 1 || o[0].UID != "uid" || o[0].Kind != "KubernetesCluster" {
		t.Errorf("owner: got %+v", o)
	}
}

func TestLabelSafe(t *testing.T) {
	t.Parallel()
	if got := labelSafe("Trøndelag-"); got != "Trndelag" {
		t.Errorf("a label value has ASCII letters only and ends in one: got %q", got)
	}
}

// example returns the cluster of the documentation's first example.
func example(t *testing.T) *v1alpha1.KubernetesCluster {
	t.Helper()
	doc, err := apis.Examples.ReadFile("examples/simple-kubernetescluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kc := &v1alpha1.KubernetesCluster{}
	if err := yaml.UnmarshalStrict(doc, kc); err != nil {
		t.Fatal(err)
	}
	kc.Namespace = "default"
	return kc
}
