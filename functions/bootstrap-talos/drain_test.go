package main

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

// drainEnv is a workload API with one Ready node.
type drainEnv struct {
	*testing.T
	*kubernetes.Clientset
	w               *workload.Client
	namespace, node string
	// real is whether the test plays kubelets and controllers.
	real bool
}

// simulated returns the workload API of a simulated cluster.
func simulated(t *testing.T) *drainEnv {
	t.Helper()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	return &drainEnv{T: t, Clientset: s.workload("shop"), w: openFor(t, s.secret("shop-kubeconfig").Data[kubeconfigKey]), namespace: "default", node: "shop-pool-0"}
}

// genuine returns a real kube-apiserver.
func genuine(t *testing.T) *drainEnv {
	t.Helper()
	server := apiserver.Start(t)
	config := server.Config()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"admin": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "admin"}},
		CurrentContext: "c",
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &drainEnv{T: t, Clientset: client, w: openFor(t, kubeconfig), namespace: server.Namespace(t), real: true}
	d.node = d.namespace + "-node"
	n, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: d.node}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.34.1", OSImage: "Talos (v1.13.9)", BootID: "boot"}
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(d.namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return d
}

func openFor(t *testing.T, kubeconfig []byte) *workload.Client {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	host, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(host.Port(), 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	w, err := workload.Connect(kubeconfig, int32(port), host.Hostname())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// run creates a pod that runs on the node.
func (d *drainEnv) run(name string, edit func(*corev1.Pod)) {
	d.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "db"}},
		Spec:       corev1.PodSpec{NodeName: d.node, Containers: []corev1.Container{{Name: "db", Image: "db:1"}}},
	}
	if edit != nil {
		edit(p)
	}
	pods := d.CoreV1().Pods(d.namespace)
	p, err := pods.Create(d.Context(), p, metav1.CreateOptions{})
	if err != nil {
		d.Fatal(err)
	}
	if d.real {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if _, err := pods.UpdateStatus(d.Context(), p, metav1.UpdateOptions{}); err != nil {
			d.Fatal(err)
		}
	}
	feed.Until(d, name+" runs", func() (bool, string) {
		p, err := pods.Get(d.Context(), name, metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, ""
	})
}

// budget creates a PodDisruptionBudget that keeps two pods, and reports healthy as the number of
// healthy ones.
func (d *drainEnv) budget(healthy int32) {
	d.Helper()
	stay := intstr.FromInt32(2)
	budgets := d.PolicyV1().PodDisruptionBudgets(d.namespace)
	b, err := budgets.Create(d.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &stay, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		d.Fatal(err)
	}
	if !d.real {
		return
	}
	b.Status = policyv1.PodDisruptionBudgetStatus{
		ObservedGeneration: b.Generation, ExpectedPods: healthy, CurrentHealthy: healthy, DesiredHealthy: 2, DisruptionsAllowed: healthy - 2,
	}
	if _, err := budgets.UpdateStatus(d.Context(), b, metav1.UpdateOptions{}); err != nil {
		d.Fatal(err)
	}
}

// stop deletes the pods that are being terminated, as their kubelet does.
func (d *drainEnv) stop() {
	d.Helper()
	if !d.real {
		return
	}
	pods := d.CoreV1().Pods(d.namespace)
	list, err := pods.List(d.Context(), metav1.ListOptions{})
	if err != nil {
		d.Fatal(err)
	}
	now := int64(0)
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			continue
		}
		if err := pods.Delete(d.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			d.Fatal(err)
		}
	}
}

// podsLeft returns the pods that remain on the node.
func (d *drainEnv) podsLeft() (names []string) {
	d.Helper()
	list, err := d.CoreV1().Pods(d.namespace).List(d.Context(), metav1.ListOptions{})
	if err != nil {
		d.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Spec.NodeName == d.node && p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	return names
}

func (d *drainEnv) observedNode() plan.Node {
	d.Helper()
	nodes, err := d.w.Nodes(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	i := slices.IndexFunc(nodes, func(n plan.Node) bool { return n.Name == d.node })
	if i < 0 {
		d.Fatalf("node %s does not exist", d.node)
	}
	return nodes[i]
}

// checkAddonRefresh upgrades kube-proxy, and skips an addon that Talos did not deploy.
func (d *drainEnv) checkAddonRefresh() {
	d.Helper()
	sets := d.AppsV1().DaemonSets("kube-system")
	if d.real {
		labels := map[string]string{"k8s-app": "kube-proxy"}
		_, err := sets.Create(d.Context(), &appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"},
			Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{Containers: []corev1.Container{
						{Name: "kube-proxy", Image: "registry.k8s.io/kube-proxy:v1.33.4"}, {Name: "beside", Image: "beside:1"},
					}},
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			d.Fatal(err)
		}
		d.Cleanup(func() { _ = sets.Delete(context.Background(), "kube-proxy", metav1.DeleteOptions{}) })
	}
	for _, image := range []string{"registry.k8s.io/kube-proxy:v1.34.2", "registry.k8s.io/kube-proxy:v1.34.2", "mirror.example.com/proxy:v1.34.3"} {
		if err := d.w.RefreshAddon(d.Context(), plan.Addon{Resource: "daemonsets", Name: "kube-proxy", Image: image, DefaultImage: "registry.k8s.io/kube-proxy"}); err != nil {
			d.Fatal(err)
		}
		set, err := sets.Get(d.Context(), "kube-proxy", metav1.GetOptions{})
		if err != nil {
			d.Fatal(err)
		}
		containers := set.Spec.Template.Spec.Containers
		if containers[0].Image != image || (d.real && (len(containers) != 2 || containers[1].Image != "beside:1")) {
			d.Errorf("kube-proxy runs %v, want %s", containers, image)
		}
	}
	if err := d.w.RefreshAddon(d.Context(), plan.Addon{Resource: "daemonsets", Name: "missing", Image: "a:1", DefaultImage: "a"}); err != nil {
		d.Errorf("a missing addon is not created: %v", err)
	}
}

// TestDrain drains, labels, taints and deletes a node, and changes the image of an addon, in a
// simulated workload API and in a real one.
func TestDrain(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *drainEnv{"Simulated": simulated, "Real": genuine} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			d.checkLabels()
			d.checkAddonRefresh()
			d.checkDrain()
			d.checkDelete()
		})
	}
}

// checkDelete checks that only a Node that is as listed is deleted.
func (d *drainEnv) checkDelete() {
	d.Helper()
	before := d.observedNode()
	if err := d.w.PatchNode(d.Context(), d.node, map[string]any{"metadata": map[string]any{"labels": map[string]any{"taken": "over"}}}); err != nil {
		d.Fatal(err)
	}
	if gone, err := d.w.DeleteNode(d.Context(), before); gone || err != nil {
		d.Errorf("a Node that has changed is gone: %t, %v", gone, err)
	}
	now := d.observedNode()
	for range 2 { // the second call finds no Node
		if gone, err := d.w.DeleteNode(d.Context(), now); !gone || err != nil {
			d.Errorf("the Node is gone: %t, %v", gone, err)
		}
	}
}

func (d *drainEnv) checkLabels() {
	d.Helper()
	if n := d.observedNode(); !n.Ready || n.Cordoned || n.TalosVersion != "1.13.9" || !strings.HasPrefix(n.Version, "v1.34.") || n.BootID == "" {
		d.Errorf("the observed node is %+v", n)
	}
	others := len(d.observedNode().Taints)
	properties := v1alpha1.MachineProperties{
		Labels: map[string]string{"tier": "front", "node-role.kubernetes.io/front": ""},
		Taints: []v1alpha1.NodeTaint{{Key: "only", Value: "front", Effect: "NoSchedule"}},
	}
	for _, p := range []v1alpha1.MachineProperties{properties, {}} {
		if err := d.w.PatchNode(d.Context(), d.node, workload.LabelPatch(d.observedNode(), p)); err != nil {
			d.Fatal(err)
		}
		n := d.observedNode()
		if n.Labels["tier"] != p.Labels["tier"] || len(n.Taints) != others+len(p.Taints) {
			d.Errorf("labels %v and taints %v, want %v and %v", n.Labels, n.Taints, p.Labels, p.Taints)
		}
		if again := workload.LabelPatch(n, p); again != nil {
			d.Errorf("a Node without a difference is updated: %v", again)
		}
	}
}

func (d *drainEnv) checkDrain() {
	d.Helper()
	controller := true
	d.run("agent", func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "agent", Controller: &controller}}
		p.Labels = nil
	})
	for _, name := range []string{"db-0", "db-1", "db-2"} {
		d.run(name, nil)
	}
	d.budget(3)
	u := v1alpha1.NodeUpgrade{Name: d.node, Cordoned: true}
	c := &cluster{KubernetesCluster: &v1alpha1.KubernetesCluster{}, observed: observed{machines: map[string]*v1alpha1.Machine{d.node: {}}}}
	c.Status.Upgrade = &v1alpha1.UpgradeStatus{Kind: v1alpha1.UpgradeTalos}
	prepare := func() (plan.UpgradeStep, string) { return drainNode(d.Context(), c, d.w, u) }
	now, why := prepare()
	if now != plan.UpgradeDrain || !strings.Contains(why, "may not be moved: Cannot evict pod as it would violate the pod's disruption budget. The disruption budget db ") {
		d.Errorf("the budget keeps two pods: got %s, %s", now, why)
	}
	if left := d.podsLeft(); len(left) != 3 || !d.observedNode().Cordoned {
		d.Errorf("pods %v are left on the node, want the agent and two; cordoned: %t", left, d.observedNode().Cordoned)
	}
	if err := d.PolicyV1().PodDisruptionBudgets(d.namespace).Delete(d.Context(), "db", metav1.DeleteOptions{}); err != nil {
		d.Fatal(err)
	}
	feed.Until(d, "every pod is evicted", func() (bool, string) {
		now, why = prepare()
		d.stop()
		return now == plan.UpgradeRequest, why
	})
	if left := d.podsLeft(); !slices.Equal(left, []string{"agent"}) {
		d.Errorf("pods %v are left on the node, want the agent", left)
	}
}
