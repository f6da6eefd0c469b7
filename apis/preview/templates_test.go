package preview_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/v1alpha1"
)

const standardTemplate = `apiVersion: vitistack.io/v1alpha1
kind: ClusterTemplate
metadata: {name: standard}
spec:
  cluster: {topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: a, replicas: 1}]}}
  rollout: {waves: [{name: test, selector: {matchLabels: {environment: test}}}]}
`

// ownedCluster has all fields of the template, and owner has the field that its manifest owns.
const ownedCluster = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata:
  name: NAME
  namespace: shop
  labels: {environment: WAVE}
  annotations: {vitistack.io/cluster-template: '{"name": "standard", "revision": "old", "cluster": {}}'}
  managedFields:
    - {manager: owner, operation: Apply, apiVersion: vitistack.io/v1alpha1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:templateRef": {"f:name": {}}, "f:topology": {OWN}}}}
    - {manager: vitistack-template, operation: Apply, apiVersion: vitistack.io/v1alpha1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:topology": {"f:version": {}, "f:controlplane": {"f:replicas": {}}, "f:workers": {}}}}}
spec: {data: {}, templateRef: {name: standard}, topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: a, replicas: 1}]}}
`

func parse(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestTemplateChange changes a ClusterTemplate with three clusters, one of which has the version in its manifest.
func TestTemplateChange(t *testing.T) {
	t.Parallel()
	world := preview.World{DefaultTalos: "1.13.9"}
	for _, c := range []struct{ name, wave, own string }{{"late", "prod", ""}, {"own", "test", `"f:version": {}`}, {"canary", "test", ""}} {
		kc := v1alpha1.KubernetesCluster{}
		if err := yaml.Unmarshal([]byte(strings.NewReplacer("NAME", c.name, "WAVE", c.wave, "OWN", c.own).Replace(ownedCluster)), &kc); err != nil {
			t.Fatal(err)
		}
		world.Clusters = append(world.Clusters, kc)
	}
	next := parse(t, strings.Replace(standardTemplate, `"1.33"`, `"1.34"`, 1))
	p := preview.Make([]preview.Document{{Index: 1, Object: next, Before: parse(t, standardTemplate), After: next, Checked: true}}, world)
	if len(p.Documents) != 4 || !p.Valid || !p.Changed {
		t.Fatalf("got %+v", p)
	}
	for i, want := range []struct {
		name, note string
		changes    int
	}{{"canary", "in wave test (1 of 1)", 1}, {"own", "in wave test (1 of 1)", 0}, {"late", "after all waves", 1}} {
		d := p.Documents[i+1]
		if d.Kind != "KubernetesCluster" || d.Name != want.name || !strings.HasPrefix(d.Note, "by ClusterTemplate standard, "+want.note) || len(d.Changes) != want.changes {
			t.Errorf("document %d: %+v", i+1, d)
		}
		for _, c := range d.Changes {
			if c.Field != "topology.version" || c.To != "1.34" {
				t.Errorf("%s: %+v", d.Name, c)
			}
		}
	}
}

// TestTemplatedCluster previews a new cluster that only names a ClusterTemplate.
func TestTemplatedCluster(t *testing.T) {
	t.Parallel()
	manifest := parse(t, `{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: web, namespace: shop}, spec: {data: {}, templateRef: {name: standard}, topology: {controlplane: {replicas: 3}}}}`)
	world := preview.World{DefaultTalos: "1.13.9"}
	p := preview.Make([]preview.Document{{Index: 1, Object: manifest}}, world)
	if len(p.Warnings) != 1 || p.Warnings[0].Reason != "ClusterTemplateNotFound" {
		t.Errorf("without the template: %+v", p)
	}
	p = preview.Make([]preview.Document{{Index: 1, Object: parse(t, standardTemplate)}, {Index: 2, Object: manifest}}, world)
	var created []string
	for _, s := range p.Documents[1].Steps {
		created = append(created, s.Machines...)
	}
	if got := strings.Join(created, " "); got != "web-cp-0 web-cp-1 web-cp-2 web-a-0" {
		t.Errorf("machines %s: three control planes of the manifest and the pool of the template are created: %+v", got, p)
	}
}
