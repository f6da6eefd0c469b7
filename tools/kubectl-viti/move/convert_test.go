package move

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

func parse(t *testing.T, kind cluster.Kind, text string) object {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return object{Unstructured: u, kind: kind}
}

func TestConvert(t *testing.T) {
	t.Parallel()
	uids := map[string]string{"cluster": "cluster-2", "machine": "machine-2"}
	for because, tc := range map[string]struct {
		kind           cluster.Kind
		object, want   string
		status, wanted string
	}{
		"owners, marks and the spec stay, and the metadata of the API server does not": {
			layers[2], `{apiVersion: v, kind: Machine, metadata: {namespace: a, name: web, uid: machine, resourceVersion: "7", generation: 3, finalizers: [f], labels: {l: "1"},
  annotations: {vitistack.io/reconcile: now, vitistack.io/provisioned-by: pve}, ownerReferences: [{kind: KubernetesCluster, name: shop, uid: cluster, apiVersion: v, controller: true}, {kind: Other, name: x, uid: unknown, apiVersion: v}]},
  spec: {template: small}, status: {observedGeneration: 3, phase: Running, conditions: [{type: Ready, status: "True", reason: MachineRunning, message: m, observedGeneration: 2}, {type: StorageReady, status: "True"}]}}`,
			`{apiVersion: v, kind: Machine, metadata: {namespace: a, name: web, finalizers: [f], labels: {l: "1"},
  annotations: {vitistack.io/provisioned-by: pve, vitistack.io/paused: moving, vitistack.io/former-uids: machine}, ownerReferences: [{kind: KubernetesCluster, name: shop, uid: cluster-2, apiVersion: v, controller: true}]}, spec: {template: small}}`,
			"", `{observedGeneration: 1, phase: Running, conditions: [{type: Ready, status: Unknown, reason: Moved, message: moved from another management cluster; its function adopts what exists, observedGeneration: 0, lastTransitionTime: "2026-11-25T22:00:00Z"}, {type: StorageReady, status: "True"}]}`,
		},
		"a second move adds a UID, and the first one stays first": {
			layers[2], `{apiVersion: v, kind: Machine, metadata: {namespace: a, name: web, uid: machine, annotations: {vitistack.io/former-uids: "zero,unmarked"}}}`,
			`{apiVersion: v, kind: Machine, metadata: {namespace: a, name: web, annotations: {vitistack.io/paused: moving, vitistack.io/former-uids: "zero,machine,unmarked"}}}`, "", "",
		},
		"a status names the UID of another object": {
			layers[1], `{apiVersion: v, kind: KubernetesCluster, metadata: {namespace: a, name: shop, uid: cluster}, status: {bootstrapUID: machine}}`,
			`{apiVersion: v, kind: KubernetesCluster, metadata: {namespace: a, name: shop, annotations: {vitistack.io/paused: moving, vitistack.io/former-uids: cluster}}}`, "", `{bootstrapUID: machine-2}`,
		},
		"a Lease has a new holder": {
			companions[2], `{apiVersion: v, kind: Lease, metadata: {namespace: a, name: l, uid: lease, labels: {vitistack.io/holder: machine}}, spec: {holderIdentity: machine}}`,
			`{apiVersion: v, kind: Lease, metadata: {namespace: a, name: l, labels: {vitistack.io/holder: machine-2}, annotations: {vitistack.io/former-uids: lease}}, spec: {holderIdentity: machine-2}}`, "", "",
		},
	} {
		o := parse(t, tc.kind, tc.object)
		if diff := cmp.Diff(parse(t, tc.kind, tc.want).Object, convert(withGenerations(o), uids, pausedByMove).Object); diff != "" {
			t.Errorf("%s (-want +got):\n%s", because, diff)
		}
		if tc.wanted == "" {
			continue
		}
		want := withGenerations(parse(t, tc.kind, "{status: "+tc.wanted+"}")).Object["status"]
		got := convertStatus(withGenerations(o), uids, 1, metav1.NewTime(time.Date(2026, 11, 25, 22, 0, 0, 0, time.UTC)))
		if diff := cmp.Diff(want, any(got)); diff != "" {
			t.Errorf("%s: status (-want +got):\n%s", because, diff)
		}
	}
}

// withGenerations has whole numbers as the client of Kubernetes has them.
func withGenerations(o object) object {
	var whole func(value any) any
	whole = func(value any) any {
		switch v := value.(type) {
		case map[string]any:
			for key := range v {
				v[key] = whole(v[key])
			}
		case []any:
			for i := range v {
				v[i] = whole(v[i])
			}
		case float64:
			return int64(v)
		}
		return value
	}
	whole(o.Object)
	return o
}

func TestDecideObject(t *testing.T) {
	t.Parallel()
	for because, tc := range map[string]struct{ metadata, action string }{
		"nothing else changes it":                    {`{}`, Moves},
		"it would not be gone":                       {`{deletionTimestamp: "2026-11-25T22:00:00Z"}`, Decision},
		"an earlier call has paused it":              {`{annotations: {vitistack.io/paused: moving}}`, Moves},
		"the deletion has waited for the move":       {`{deletionTimestamp: "2026-11-25T22:00:00Z", annotations: {vitistack.io/paused: moving}}`, Moves},
		"the target would not adopt what is outside": {`{annotations: {vitistack.io/paused: "true"}}`, Decision},
	} {
		if action, note := decideObject(parse(t, layers[2], "{metadata: "+tc.metadata+"}")); action != tc.action || (note == "") != (action == Moves) {
			t.Errorf("%s: got %s: %s", because, action, note)
		}
	}
}

func TestIsReconciling(t *testing.T) {
	t.Parallel()
	for because, tc := range map[string]struct {
		kind   cluster.Kind
		object string
		want   bool
	}{
		"its function has ended":          {layers[2], `{metadata: {generation: 2}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "True"}]}}`, false},
		"its function has not seen it":    {layers[2], `{metadata: {generation: 1}}`, true},
		"a change may be under way":       {layers[2], `{metadata: {generation: 3}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "True"}]}}`, true},
		"its function creates something":  {layers[2], `{metadata: {generation: 2}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "False"}]}}`, true},
		"an upgrade continues":            {layers[1], `{metadata: {generation: 2}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "True"}, {type: Reconciling, status: "True"}]}}`, true},
		"its status has no generation":    {layers[4], `{metadata: {generation: 2}, status: {conditions: [{type: Ready, status: "True"}]}}`, false},
		"no function reconciles a Secret": {companions[0], `{metadata: {name: keys}}`, false},
	} {
		if got := isReconciling(withGenerations(parse(t, tc.kind, tc.object))); got != tc.want {
			t.Errorf("%s: got %t", because, got)
		}
	}
}

func TestCompanions(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	addNames(parse(t, layers[2], `{metadata: {namespace: a, name: web}, spec: {cloudInit: {secretRef: {name: guest}}}}`), named)
	addNames(parse(t, layers[1], `{metadata: {namespace: a, name: shop}, spec: {talos: {patches: {all: [ntp]}}, topology: {workers: [{patches: [gpu]}]}, addons: [{name: network, configMap: cilium}, {name: metrics, url: 'https://example.com/metrics.yaml'}]}}`), named)
	secret, configMap, lease := companions[0], companions[1], companions[2]
	for because, tc := range map[string]struct {
		kind   cluster.Kind
		object string
		want   bool
	}{
		"a Machine names it":                    {secret, `{metadata: {namespace: a, name: guest}}`, true},
		"one of that name in another namespace": {secret, `{metadata: {namespace: b, name: guest}}`, false},
		"a Secret of another program":           {secret, `{metadata: {namespace: a, name: other}}`, false},
		"a cluster owns it":                     {secret, `{metadata: {namespace: a, name: keys, ownerReferences: [{uid: cluster}]}}`, true},
		"keys of a cluster without an owner":    {secret, `{metadata: {namespace: a, name: keys, labels: {cluster.vitistack.io/cluster-name: shop}}}`, true},
		"it belongs to a virtual machine":       {secret, `{metadata: {namespace: a, name: web-cloudinit, annotations: {vitistack.io/uid: machine}, ownerReferences: [{uid: machine}]}}`, false},
		"patches for all nodes":                 {configMap, `{metadata: {namespace: a, name: ntp}}`, true},
		"patches of a pool":                     {configMap, `{metadata: {namespace: a, name: gpu}}`, true},
		"the manifests of an add-on":            {configMap, `{metadata: {namespace: a, name: cilium}}`, true},
		"a ConfigMap of another program":        {configMap, `{metadata: {namespace: a, name: kube-root-ca.crt}}`, false},
		"an address":                            {lease, `{metadata: {namespace: a, name: l, labels: {vitistack.io/managed-by: allocate-ip}}}`, true},
		"a Lease of another program":            {lease, `{metadata: {namespace: a, name: l}}`, false},
	} {
		if got := isCompanion(parse(t, tc.kind, tc.object), map[string]bool{"cluster": true, "machine": true}, named); got != tc.want {
			t.Errorf("%s: got %t", because, got)
		}
	}
}
