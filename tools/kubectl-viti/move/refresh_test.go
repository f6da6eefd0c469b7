package move

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

var clusterKind = cluster.MustFindKind("KubernetesCluster")

const (
	scaledCluster = `{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: shop, namespace: shop, uid: here, generation: 2, annotations: {vitistack.io/paused: moving}},
  spec: {replicas: 5}, status: {observedGeneration: 2, conditions: [{type: Ready, status: "True", reason: Ready}]}}`
	rotatedKeys = `{apiVersion: v1, kind: Secret, metadata: {name: shop-talos-secrets, namespace: shop, uid: keys, labels: {cluster.vitistack.io/cluster-name: shop}}, data: {keys: bmV3}}`
	oldCopy     = `{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: shop, namespace: shop, uid: there, generation: 1, annotations: {vitistack.io/former-uids: here, vitistack.io/paused: moving}}, spec: {replicas: 3}}`
	oldKeys     = `{apiVersion: v1, kind: Secret, metadata: {name: shop-talos-secrets, namespace: shop, uid: copied, labels: {cluster.vitistack.io/cluster-name: shop}, annotations: {vitistack.io/former-uids: keys}}, data: {keys: b2xk}}`
)

// moverOf returns a Mover of the namespace shop between two simulated API servers with objects.
func moverOf(t *testing.T, here, there []string) *Mover {
	t.Helper()
	connectTo := func(host string, texts []string) *cluster.Connection {
		c, client := connect(host)
		space := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}
		if err := client.Tracker().Add(space); err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			if err := client.Tracker().Add(withGenerations(parse(t, clusterKind, text)).Unstructured); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	return &Mover{From: connectTo("https://here", here), To: connectTo("https://there", there), Namespace: "shop", Timeout: time.Second, Report: t.Logf}
}

// TestChangesSinceAnInterruption continues a move after the cluster was scaled and its authorities were rotated here. Its nodes would be removed and
// its new keys lost with the old copies.
func TestChangesSinceAnInterruption(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		because, copy, keys string
		replicas            int64
	}{
		{"no function has reconciled the copies", oldCopy, "bmV3", 5},
		{"the functions at the target reconcile the copies", strings.Replace(oldCopy, ", vitistack.io/paused: moving", "", 1), "b2xk", 3},
	} {
		m := moverOf(t, []string{scaledCluster, rotatedKeys}, []string{tc.copy, oldKeys})
		all, err := m.read(t.Context())
		if err != nil || len(all) != 2 {
			t.Fatalf("got %d objects and %v, want a cluster and its keys", len(all), err)
		}
		there, err := m.readTarget(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.create(t.Context(), all, there); err != nil {
			t.Fatal(err)
		}
		kc, err := m.To.In(clusterKind, "shop").Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		secret, err := m.To.In(companions[0], "shop").Get(t.Context(), "shop-talos-secrets", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		replicas, _, _ := unstructured.NestedInt64(kc.Object, "spec", "replicas")
		keys, _, _ := unstructured.NestedString(secret.Object, "data", "keys")
		if replicas != tc.replicas || keys != tc.keys || v1alpha1.IsPaused(kc) || kc.GetUID() != "there" {
			t.Errorf("%s: got %d replicas, keys %q and %v, want %d and %q", tc.because, replicas, keys, kc.Object["metadata"], tc.replicas, tc.keys)
		}
	}
}

// TestBothActive has a user resume objects here while their copies are active.
func TestBothActive(t *testing.T) {
	t.Parallel()
	unpaused := func(text string) string {
		return strings.NewReplacer(", vitistack.io/paused: moving", "", ", annotations: {vitistack.io/paused: moving}", "").Replace(text)
	}
	m := moverOf(t, []string{unpaused(scaledCluster)}, []string{unpaused(oldCopy)})
	rows, err := m.Plan(t.Context())
	if err != nil || len(rows) != 1 || rows[0].Action != Decision || !strings.Contains(rows[0].Note, "vitistack.io/paused=moving") {
		t.Errorf("got %+v and %v, want a decision", rows, err)
	}
}

// TestSameCluster reaches one management cluster by two addresses. The advice to delete one of two objects of a name would delete the only one.
func TestSameCluster(t *testing.T) {
	t.Parallel()
	m := moverOf(t, []string{scaledCluster}, []string{scaledCluster})
	if rows, err := m.Plan(t.Context()); err == nil || !strings.Contains(err.Error(), "the same management cluster") || !strings.Contains(err.Error(), "--to-context") {
		t.Errorf("got %+v and %v", rows, err)
	}
}
