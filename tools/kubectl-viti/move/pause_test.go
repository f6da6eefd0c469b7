package move

import (
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
