package workload_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// world is a cluster with an API server and a client.
type world struct {
	*workload.Cluster
	client *kubernetes.Clientset
	path   string
	// broken makes the API server's storage fail.
	broken atomic.Bool
	user   atomic.Pointer[workload.User]
}

func newWorld(t *testing.T, timing workload.Timing) *world {
	t.Helper()
	w := &world{path: filepath.Join(t.TempDir(), "cluster.journal")}
	w.user.Store(&workload.User{Name: "admin", Groups: []string{"system:masters"}})
	w.open(t, timing)
	server := httptest.NewServer(&workload.Server{
		Cluster: w.Cluster, Version: "v1.34.1",
		Authenticate: func(*http.Request) (workload.User, bool) {
			u := w.user.Load()
			return *u, u.Name != ""
		},
		Storage: func() error {
			if w.broken.Load() {
				return errors.New("etcdserver: no leader")
			}
			return nil
		},
	})
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	w.client = client
	return w
}

func (w *world) open(t *testing.T, timing workload.Timing) {
	t.Helper()
	c, err := workload.Open(w.path, timing, func() {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := errors.Join(c.Seed(workload.Seed{ProxyImage: "proxy:v1", DNSImage: "dns:v1"}), c.SetOnline(true)); err != nil {
		t.Fatal(err)
	}
	w.Cluster = c
}

func (w *world) join(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := w.Join(workload.Kubelet{Name: name, Address: "127.0.0.9", Version: "v1.34.1", CPUs: 2, Memory: 1 << 30}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "node "+name+" is ready", func() bool {
			node, ok := w.Node(name)
			return ok && workload.NodeReady(node)
		})
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true,
		func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		t.Fatalf("timed out waiting until %s", what)
	}
}

func pod(name, node string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func (w *world) create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := w.client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNodeLifecycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workload.Timing{})
	w.join(t, "one")
	nodes := w.client.CoreV1().Nodes()
	events, err := nodes.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0", FieldSelector: "metadata.name=one"})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	if e := <-events.ResultChan(); e.Type != watch.Added {
		t.Fatalf("first event is %v", e.Type)
	}
	w.Leave("one")
	e := <-events.ResultChan()
	node, ok := e.Object.(*corev1.Node)
	if !ok || workload.NodeReady(node) || len(node.Spec.Taints) != 2 {
		t.Errorf("a lost node must be unknown and tainted, got %+v", e.Object)
	}
	w.join(t, "one")
	if node, _ := w.Node("one"); len(node.Spec.Taints) != 0 {
		t.Errorf("a returned node keeps taints %v", node.Spec.Taints)
	}
	if err := nodes.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	pods, err := w.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=one"})
	if err != nil || len(pods.Items) != 0 {
		t.Errorf("pods of a deleted node remain: %v, %v", pods.Items, err)
	}
}

func TestPatches(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		format types.PatchType
		body   string
	}{
		"Strategic": {"kubectl cordon sends this", types.StrategicMergePatchType, `{"spec":{"unschedulable":true}}`},
		"Merge":     {"a merge patch", types.MergePatchType, `{"spec":{"unschedulable":true}}`},
		"JSON":      {"a JSON patch", types.JSONPatchType, `[{"op":"add","path":"/spec/unschedulable","value":true}]`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, workload.Timing{})
			w.join(t, "n")
			node, err := w.client.CoreV1().Nodes().Patch(t.Context(), "n", tc.format, []byte(tc.body), metav1.PatchOptions{})
			if err != nil || !node.Spec.Unschedulable {
				t.Fatalf("%s: got %v, %v", tc.reason, node.Spec, err)
			}
			again, err := w.client.CoreV1().Nodes().Patch(t.Context(), "n", tc.format, []byte(tc.body), metav1.PatchOptions{})
			if err != nil || again.ResourceVersion != node.ResourceVersion {
				t.Errorf("a patch that changes nothing moved the version from %s to %s, %v", node.ResourceVersion, again.ResourceVersion, err)
			}
		})
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workload.Timing{})
	w.join(t, "n")
	nodes := w.client.CoreV1().Nodes()
	label := func(manager, value string, force bool) error {
		_, err := nodes.Apply(t.Context(), corev1apply.Node("n").WithLabels(map[string]string{"pool": value}),
			metav1.ApplyOptions{FieldManager: manager, Force: force})
		return err
	}
	if err := label("a", "x", false); err != nil {
		t.Fatal(err)
	}
	if err := label("b", "y", false); !apierrors.IsConflict(err) {
		t.Errorf("another manager's field must conflict, got %v", err)
	}
	if err := label("b", "y", true); err != nil {
		t.Error(err)
	}
	if _, err := nodes.Apply(t.Context(), corev1apply.Node("n"), metav1.ApplyOptions{FieldManager: "b"}); err != nil {
		t.Fatal(err)
	}
	node, err := nodes.Get(t.Context(), "n", metav1.GetOptions{})
	if _, has := node.Labels["pool"]; err != nil || has {
		t.Errorf("a field that no manager applies any more must be removed, got %v, %v", node.Labels, err)
	}
}

// TestNodesNeedANetworkPlugin checks that a node without the plug-in of Talos is Ready once the pod of another one runs.
func TestNodesNeedANetworkPlugin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workload.Timing{})
	if err := w.Join(workload.Kubelet{Name: "n", Address: "192.0.2.7", WithoutCNI: true}); err != nil {
		t.Fatal(err)
	}
	set := func(name string, volumes ...corev1.Volume) *appsv1.DaemonSet {
		labels := map[string]string{"k8s-app": name}
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				HostNetwork: true, Volumes: volumes, Containers: []corev1.Container{{Name: name, Image: name + ":1"}},
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			}},
		}}
	}
	create := func(s *appsv1.DaemonSet) {
		if _, err := w.client.AppsV1().DaemonSets("kube-system").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(set("proxy"))
	eventually(t, "a pod of the host's network runs", func() bool { return len(w.NotReady("proxy")) == 0 })
	if node, _ := w.Node("n"); workload.NodeReady(node) {
		t.Fatal("the node is Ready without a network plug-in")
	}
	create(set("cilium", corev1.Volume{Name: "etc-cni-netd", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/cni/net.d"}}}))
	eventually(t, "the node is Ready", func() bool { node, _ := w.Node("n"); return workload.NodeReady(node) })
}

func TestWritesAreStrict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workload.Timing{})
	w.join(t, "n")
	ctx := t.Context()
	stale, err := w.client.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Cordon("n"); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		do     func() error
		want   func(error) bool
	}{
		"Conflict": {"an outdated object must not overwrite", func() error {
			_, err := w.client.CoreV1().Nodes().Update(ctx, stale, metav1.UpdateOptions{})
			return err
		}, apierrors.IsConflict},
		"NotFound": {"a missing object", func() error {
			return w.client.CoreV1().Nodes().Delete(ctx, "missing", metav1.DeleteOptions{})
		}, apierrors.IsNotFound},
		"Exists": {"a name taken", func() error {
			_, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
			return err
		}, apierrors.IsAlreadyExists},
		"Name": {"an illegal name", func() error {
			_, err := w.client.CoreV1().Pods("default").Create(ctx, pod("Bad_Name", "", nil), metav1.CreateOptions{})
			return err
		}, apierrors.IsInvalid},
		"Namespace": {"a namespace that does not exist", func() error {
			p := pod("p", "", nil)
			p.Namespace = "nowhere"
			_, err := w.client.CoreV1().Pods("nowhere").Create(ctx, p, metav1.CreateOptions{})
			return err
		}, apierrors.IsNotFound},
		"Selector": {"an unknown field", func() error {
			_, err := w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.color=red"})
			return err
		}, apierrors.IsBadRequest},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := tc.do(); !tc.want(err) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workload.Timing{})
	list := func() error {
		_, err := w.client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
		return err
	}
	w.user.Store(&workload.User{Name: "reader", Groups: []string{"dev"}})
	if err := list(); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights: got %v", err)
	}
	w.user.Store(&workload.User{})
	if err := list(); !apierrors.IsUnauthorized(err) {
		t.Errorf("a client without credentials: got %v", err)
	}
	w.user.Store(&workload.User{Name: "admin", Groups: []string{"system:masters"}})
	w.broken.Store(true)
	if err := list(); !apierrors.IsInternalError(err) {
		t.Errorf("without etcd: got %v", err)
	}
	if _, err := w.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err == nil {
		t.Error("without etcd the server must not be ready")
	}
}

func TestEvictionRespectsBudgets(t *testing.T) {
	t.Parallel()
	one, half := intstr.FromInt32(1), intstr.FromString("50%")
	cases := map[string]struct {
		reason string
		budget policyv1.PodDisruptionBudgetSpec
		want   []bool
	}{
		"MinAvailable":        {"the last pod must stay", policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, []bool{true, false}},
		"NoControllerMax":     {"a maximum cannot be measured without a controller", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one}, []bool{false, false}},
		"NoControllerPercent": {"a share cannot be measured without a controller", policyv1.PodDisruptionBudgetSpec{MinAvailable: &half}, []bool{false, false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, workload.Timing{})
			w.join(t, "n")
			app := map[string]string{"app": "web"}
			w.create(t, pod("a", "n", app), pod("b", "n", app))
			tc.budget.Selector = &metav1.LabelSelector{MatchLabels: app}
			if _, err := w.client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(),
				&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: tc.budget}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			var got []bool
			for _, name := range []string{"a", "b"} {
				err := w.client.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}})
				if err != nil && !apierrors.IsTooManyRequests(err) {
					t.Fatal(err)
				}
				got = append(got, err == nil)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPodsOfDeadNodesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workload.Timing{})
	w.join(t, "n")
	w.create(t, pod("p", "n", nil))
	w.Leave("n")
	eventually(t, "the node is lost", func() bool { node, _ := w.Node("n"); return !workload.NodeReady(node) })
	pods := w.client.CoreV1().Pods("default")
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || p.DeletionTimestamp == nil {
		t.Fatalf("the pod was deleted without a kubelet that stopped it: %v, %v", p, err)
	}
	w.join(t, "n")
	if _, err := pods.Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the returned kubelet must stop the pod, got %v", err)
	}
}

func TestDeploymentsMoveOnDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workload.Timing{})
	w.join(t, "one")
	if got := w.dnsOn(t, "one"); got != 2 {
		t.Fatalf("%d DNS pods run, want 2", got)
	}
	w.join(t, "two")
	if err := w.Cordon("one"); err != nil {
		t.Fatal(err)
	}
	w.Drain("one")
	if got := w.dnsOn(t, "two"); got != 2 {
		t.Errorf("%d DNS pods moved, want 2", got)
	}
}

func (w *world) dnsOn(t *testing.T, node string) int {
	t.Helper()
	pods, err := w.client.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{
		LabelSelector: "k8s-app=kube-dns", FieldSelector: "status.phase=Running,spec.nodeName=" + node,
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(pods.Items)
}

func TestReopen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, workload.Timing{})
	w.join(t, "n")
	w.create(t, pod("p", "n", nil))
	before, _ := w.Node("n")
	again := &world{path: w.path} // no Close: the process was killed
	again.open(t, workload.Timing{NodeLost: time.Hour})
	after, ok := again.Node("n")
	if !ok || after.UID != before.UID {
		t.Fatalf("node is lost: had %v, have %v", before.UID, after)
	}
	again.join(t, "n")
	if got := again.StaticPodsReady("n"); got != 0 {
		t.Errorf("a worker has %d static pods", got)
	}
}
