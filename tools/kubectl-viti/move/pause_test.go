package move

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	ktesting "k8s.io/client-go/testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// connect returns a connection to a simulated API server.
func connect(host string, objects ...runtime.Object) (*cluster.Connection, *fake.FakeDynamicClient) {
	kinds := map[schema.GroupVersionResource]string{}
	providers := []cluster.Kind{cluster.MustFindKind("MachineProvider"), cluster.MustFindKind("MachineClass"), cluster.MustFindKind("NetworkPool"), cluster.MustFindKind("ClusterTemplate")}
	for _, kind := range slices.Concat(layers, companions, providers) {
		kinds[kind.GVR()] = kind.Name + "List"
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
	system := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": metav1.NamespaceSystem, "uid": host}}}
	if err := client.Tracker().Add(system); err != nil {
		panic(err)
	}
	return &cluster.Connection{Interface: client, Config: &rest.Config{Host: host}}, client
}

// TestUnpausedDuringMove unpauses a network while its copy is created, as GitOps does that applies it again. The copy stays
// paused.
func TestUnpausedDuringMove(t *testing.T) {
	t.Parallel()
	kind := cluster.MustFindKind("NetworkNamespace")
	object := func(text string) *unstructured.Unstructured { return parse(t, kind, text).Unstructured }
	space := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}
	here, _ := connect("https://here", space.DeepCopy(), object(`{apiVersion: vitistack.io/v1alpha2, kind: NetworkNamespace, metadata: {name: net, namespace: shop, uid: u, generation: 1},
  status: {phase: Ready, observedGeneration: 1, conditions: [{type: Ready, status: "True", reason: Ready}]}}`))
	there, client := connect("https://there", space.DeepCopy())
	m := &Mover{From: here, To: there, Timeout: time.Second, Report: t.Logf}
	client.PrependReactor("create", "networknamespaces", func(ktesting.Action) (bool, runtime.Object, error) {
		err := patch(t.Context(), here, readNetwork(t, here, kind), map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationPaused: nil}}})
		return false, nil, err
	})
	err := m.Move(t.Context())
	if err == nil || !strings.Contains(err.Error(), "NetworkNamespace shop/net is not paused any more") {
		t.Errorf("the move ends with %v", err)
	}
	if !v1alpha1.IsPaused(readNetwork(t, there, kind)) {
		t.Error("the copy is unpaused, while the network is not paused")
	}
}

func readNetwork(t *testing.T, c *cluster.Connection, kind cluster.Kind) object {
	t.Helper()
	found, err := c.In(kind, "shop").Get(t.Context(), "net", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object{Unstructured: found, kind: kind}
}

// TestSnapshotDuringMove moves an EtcdBackup whose snapshot is being taken. The copy has to have the snapshot in its status: the function at the
// target would otherwise take another one at the same time.
func TestSnapshotDuringMove(t *testing.T) {
	t.Parallel()
	kind := cluster.MustFindKind("EtcdBackup")
	backup := parse(t, kind, `{apiVersion: vitistack.io/v1alpha1, kind: EtcdBackup, metadata: {name: nightly, namespace: shop, uid: u, generation: 1}, spec: {suspend: true},
  status: {observedGeneration: 1, attempt: {holder: first, renewTime: "`+time.Now().UTC().Format(metav1.RFC3339Micro)+`"}, conditions: [{type: Ready, status: "True", reason: Suspended}]}}`).Unstructured
	space := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}
	here, _ := connect("https://here", space.DeepCopy(), backup)
	there, client := connect("https://there", space.DeepCopy())
	var reports []string
	m := &Mover{From: here, To: there, Timeout: time.Millisecond, Report: func(format string, args ...any) {
		reports = append(reports, fmt.Sprintf(format, args...))
		if strings.HasPrefix(format, "Waiting for the snapshot") {
			o := object{Unstructured: backup.DeepCopy(), kind: kind}
			if err := patch(t.Context(), here, o, map[string]any{"status": map[string]any{"attempt": nil, "backupSize": "20 MiB"}}); err != nil {
				t.Error(err)
			}
		}
	}}
	_ = m.Move(t.Context()) // no function makes the copy Ready
	copied, err := client.Resource(kind.GVR()).Namespace("shop").Get(t.Context(), "nightly", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("%v after %q", err, reports)
	}
	if size, _, _ := unstructured.NestedString(copied.Object, "status", "backupSize"); size != "20 MiB" {
		t.Errorf("the copy has the status %v after %q", copied.Object["status"], reports)
	}
}

// TestTakingSnapshot looks at attempts of different ages.
func TestTakingSnapshot(t *testing.T) {
	t.Parallel()
	now := time.Now()
	of := func(kind string, age time.Duration) object {
		status := map[string]any{"attempt": map[string]any{"renewTime": now.Add(-age).UTC().Format(metav1.RFC3339Micro)}}
		return object{Unstructured: &unstructured.Unstructured{Object: map[string]any{"status": status}}, kind: cluster.MustFindKind(kind)}
	}
	for _, tc := range []struct {
		reason string
		object object
		want   bool
	}{
		{"a delivery renews it", of("EtcdBackup", time.Second), true},
		{"its delivery has died", of("EtcdBackup", attemptTimeout), false},
		{"another kind", of("Machine", time.Second), false},
		{"no attempt", object{Unstructured: &unstructured.Unstructured{Object: map[string]any{}}, kind: cluster.MustFindKind("EtcdBackup")}, false},
	} {
		if got := isTakingSnapshot(tc.object, now); got != tc.want {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	}
}
