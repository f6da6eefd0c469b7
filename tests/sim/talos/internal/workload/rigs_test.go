package workload_test

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// lightAPI returns a cluster of this package, with its own kubelets and controllers.
func lightAPI(t *testing.T) *api {
	t.Helper()
	w := newWorld(t, workload.Timing{PodStop: time.Hour})
	w.join(t, "light-node")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "light-apps"}}
	if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a := &api{T: t, Clientset: w.client, namespace: ns.Name, node: "light-node"}
	a.run = func(name string) {
		eventually(t, "pod "+name+" runs", func() bool { return podIsReady(a.get(name)) })
	}
	a.count = func(string) {}
	a.lose = func(pods ...string) {
		w.Leave(a.node)
		eventually(t, "the node is lost", func() bool { node, _ := w.Node(a.node); return !workload.NodeReady(node) })
		for _, name := range pods {
			eventually(t, "pod "+name+" is not ready", func() bool { return !podIsReady(a.get(name)) })
		}
	}
	return a
}

// realAPI returns a real kube-apiserver, in which the test plays the kubelet and the disruption
// controller.
func realAPI(t *testing.T) *api {
	t.Helper()
	server := apiserver.Start(t)
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	a := &api{T: t, Clientset: client, namespace: server.Namespace(t)}
	a.node = a.namespace + "-node"
	a.join()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(a.namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.run = func(name string) { a.report(name, corev1.ConditionTrue) }
	a.lose = func(pods ...string) {
		a.setNode(corev1.ConditionUnknown)
		for _, name := range pods {
			a.report(name, corev1.ConditionFalse)
		}
	}
	a.count = a.countBudget
	return a
}

// join creates the Node as its kubelet does, and removes the taint that admission adds to every new
// Node, as the node controller does.
func (a *api) join() {
	a.Helper()
	nodes := a.CoreV1().Nodes()
	n, err := nodes.Create(a.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.node}}, metav1.CreateOptions{})
	if err != nil {
		a.Fatal(err)
	}
	a.Cleanup(func() { _ = nodes.Delete(a.Context(), a.node, metav1.DeleteOptions{}) })
	n.Spec.Taints = nil
	if _, err := nodes.Update(a.Context(), n, metav1.UpdateOptions{}); err != nil {
		a.Fatal(err)
	}
	a.setNode(corev1.ConditionTrue)
}

func (a *api) setNode(ready corev1.ConditionStatus) {
	a.Helper()
	n, err := a.CoreV1().Nodes().Get(a.Context(), a.node, metav1.GetOptions{})
	if err != nil {
		a.Fatal(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	if _, err := a.CoreV1().Nodes().UpdateStatus(a.Context(), n, metav1.UpdateOptions{}); err != nil {
		a.Fatal(err)
	}
}

func (a *api) get(name string) *corev1.Pod {
	a.Helper()
	p, err := a.CoreV1().Pods(a.namespace).Get(a.Context(), name, metav1.GetOptions{})
	if err != nil {
		a.Fatal(err)
	}
	return p
}

// report writes a pod's status, as its kubelet does.
func (a *api) report(name string, ready corev1.ConditionStatus) {
	a.Helper()
	p := a.get(name)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if _, err := a.CoreV1().Pods(a.namespace).UpdateStatus(a.Context(), p, metav1.UpdateOptions{}); err != nil {
		a.Fatal(err)
	}
}

// countBudget writes the status of a budget that keeps a number of pods, as the disruption controller
// does.
func (a *api) countBudget(name string) {
	a.Helper()
	budgets := a.PolicyV1().PodDisruptionBudgets(a.namespace)
	b, err := budgets.Get(a.Context(), name, metav1.GetOptions{})
	if err != nil {
		a.Fatal(err)
	}
	list, err := a.CoreV1().Pods(a.namespace).List(a.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(b.Spec.Selector)})
	if err != nil {
		a.Fatal(err)
	}
	status := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DesiredHealthy: b.Spec.MinAvailable.IntVal}
	for _, p := range list.Items {
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		status.ExpectedPods++
		if p.DeletionTimestamp == nil && podIsReady(&p) {
			status.CurrentHealthy++
		}
	}
	status.DisruptionsAllowed = max(status.CurrentHealthy-status.DesiredHealthy, 0)
	b.Status = status
	if _, err := budgets.UpdateStatus(a.Context(), b, metav1.UpdateOptions{}); err != nil {
		a.Fatal(err)
	}
}

func podIsReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
