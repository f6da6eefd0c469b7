package adopt

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const operatedCluster = `{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {namespace: a, name: shop, uid: shop}, spec: {data: {clusterId: shop-x1},
  topology: {controlplane: {replicas: 1}, workers: [{name: web, template: medium}]}}}`

func TestDecideNode(t *testing.T) {
	t.Parallel()
	const owners = `ownerReferences: [{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, name: shop, uid: shop, controller: true}]`
	for _, tc := range []struct{ because, metadata, workers, action, note, patch string }{
		{"a control plane", `labels: {vitistack.io/node-role: control-plane}, ` + owners, "", Adopts, "pool cp", `"cluster.vitistack.io/role":"control-plane"`},
		{"a control plane has the default template", `labels: {vitistack.io/node-role: control-plane}, ` + owners, "", Adopts, "", `"vitistack.io/machine-template":"large"`},
		{"a worker", `labels: {vitistack.io/node-role: worker}, annotations: {vitistack.io/nodepool: web}, ` + owners, "", Adopts, "pool web", `"cluster.vitistack.io/worker-group":"web"`},
		{"a worker of the only pool", `labels: {vitistack.io/node-role: worker}, ` + owners, "", Adopts, "pool web", `"vitistack.io/machine-template":"medium"`},
		{"another pool", `labels: {vitistack.io/node-role: worker}, annotations: {vitistack.io/nodepool: gpu}, ` + owners, "", Decision, "add the pool", ""},
		{"one of two pools", `labels: {vitistack.io/node-role: worker}, ` + owners, "[{name: a}, {name: b}]", Decision, "add the pool", ""},
		{"no role", owners, "", Decision, "add the pool", ""},
		{"another owner", `labels: {vitistack.io/node-role: worker}`, "", Decision, "owner", ""},
		{"a second call", `labels: {vitistack.io/node-role: control-plane, cluster.vitistack.io/cluster-name: shop, cluster.vitistack.io/role: control-plane}, ` + owners, "", Adopted, "", ""},
	} {
		kc := parse(t, operatedCluster)
		if tc.workers != "" {
			workers := parse(t, "{workers: "+tc.workers+"}").Object["workers"]
			if err := unstructured.SetNestedField(kc.Object, workers, "spec", "topology", "workers"); err != nil {
				t.Fatal(err)
			}
		}
		r := decideNode(kc, parse(t, "{kind: Machine, metadata: {namespace: a, name: shop-x1-wrk0, "+tc.metadata+"}}"))
		patch, err := json.Marshal(r.Patch)
		if err != nil || r.Action != tc.action || !strings.Contains(r.Note, tc.note) || !strings.Contains(string(patch), tc.patch) || (tc.action == Adopts) != (r.Patch != nil) {
			t.Errorf("%s: got %s, %q, %s, %v", tc.because, r.Action, r.Note, patch, err)
		}
	}
}

func TestDecideCluster(t *testing.T) {
	t.Parallel()
	const kubeconfig = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {token: secret}}], clusters: [{name: a, cluster: {server: "https://10.0.0.9:6443"}}]}`
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, tc := range []struct {
		because, spec, version, kubeconfig, finalizer string
		ok                                            bool
		action, patch                                 string
	}{
		{"its nodes keep version and endpoint", "", "v1.13.3", kubeconfig, "", true, Adopts, `"spec":{"controlPlaneEndpoint":{"host":"10.0.0.9","mode":"custom","port":6443},"talos":{"version":"v1.13.3"}}`},
		{"the spec has both", "talos: {version: 1.13.3}, controlPlaneEndpoint: {mode: node}", "v1.13.3", kubeconfig, "", false, "", ""},
		{"its deletion would wait for the operator", "talos: {version: 1.13.3}, controlPlaneEndpoint: {mode: node}", "", "", "kubernetescluster.vitistack.io/finalizer", true, Adopts, ""},
		{"the Secret is incomplete", "", "", "", "", false, "", ""},
		{"pools of another form", "topology: {workers: {nodePools: [{name: web}]}}", "v1.13.3", kubeconfig, "", true, Decision, ""},
	} {
		kc := parse(t, "{kind: KubernetesCluster, metadata: {namespace: a, name: shop, finalizers: ["+tc.finalizer+"]}, spec: {"+tc.spec+"}}")
		secret := parse(t, "{kind: Secret, metadata: {name: shop-x1}, data: {talos_version: "+encoded(tc.version)+", kube.config: "+encoded(tc.kubeconfig)+"}}")
		r, ok := decideCluster(kc, secret)
		patch, err := json.Marshal(r.Patch)
		if err != nil || ok != tc.ok || ok && (r.Action != tc.action || !strings.Contains(string(patch), tc.patch) || strings.Contains(string(patch)+r.Note, "token")) {
			t.Errorf("%s: got %t, %s, %q, %s, %v", tc.because, ok, r.Action, r.Note, patch, err)
		}
	}
}
