package talos_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/talos"
)

func TestKubernetesKnowsItsClients(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 0)
	data, err := r.client(2).Kubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	anonymous := *cfg
	anonymous.CertData, anonymous.KeyData = nil, nil
	k, err := kubernetes.NewForConfig(&anonymous)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a client without a certificate: got %v", err)
	}
	admin := r.kube()
	version, err := admin.Discovery().ServerVersion()
	if err != nil || version.GitVersion != "v1.34.1" {
		t.Errorf("version is %v, %v", version, err)
	}
	ready, err := admin.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	if err != nil || string(ready) != "ok" {
		t.Errorf("readyz says %s, %v", ready, err)
	}
}

func TestWorkersHaveNoKubeconfig(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 1)
	if _, err := r.up(3).Kubeconfig(t.Context()); err == nil {
		t.Error("a worker returns a kubeconfig")
	}
}

func TestNodesFollowTheirMachines(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 1)
	k := r.kube()
	plane, err := k.CoreV1().Nodes().Get(t.Context(), "cp-2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, is := plane.Labels["node-role.kubernetes.io/control-plane"]; !is || len(plane.Spec.Taints) != 1 {
		t.Errorf("the control plane's node is %v, %v", plane.Labels, plane.Spec.Taints)
	}
	if err := r.fleet.PowerOff(r.machine(3).ID); err != nil {
		t.Fatal(err)
	}
	r.nodesReady(1)
	r.powerOn(3)
	r.nodesReady(2)
	if err := k.CoreV1().Nodes().Delete(t.Context(), "worker-3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.nodesReady(1)
	if err := r.fleet.Reboot(r.machine(3).ID); err != nil {
		t.Fatal(err)
	}
	r.nodesReady(2) // a kubelet registers its Node when it starts
	if err := k.CoreV1().Nodes().Delete(t.Context(), "worker-3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	worker := r.up(3)
	if _, err := worker.ServiceRestart(t.Context(), "kubelet"); err != nil {
		t.Fatal(err)
	}
	r.nodesReady(2)
	_, err = worker.ServiceRestart(t.Context(), "apid")
	check(t, "a service that cannot be restarted", err, codes.Unknown)
}

// drain does once what kubectl drain does.
func drain(ctx context.Context, k *kubernetes.Clientset, node string) error {
	patch := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := k.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	pods, err := k.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pods.Items {
		if owner := metav1.GetControllerOf(&p); owner != nil && owner.Kind == "DaemonSet" {
			continue
		}
		err := k.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}})
		if err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

func TestDrainRespectsBudgets(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 1)
	k := r.kube()
	app := map[string]string{"app": "db"}
	for _, name := range []string{"db-0", "db-1"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: app},
			Spec:       corev1.PodSpec{NodeName: "worker-3", Containers: []corev1.Container{{Name: "db", Image: "db"}}},
		}
		if _, err := k.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: app}},
	}
	if _, err := k.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err := drain(t.Context(), k, "worker-3")
	if !apierrors.IsTooManyRequests(err) {
		t.Fatalf("the last pod of a budget was evicted: %v", err)
	}
	if err := k.PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := drain(t.Context(), k, "worker-3"); err != nil {
		t.Errorf("the node is not drained: %v", err)
	}
}

func TestWorkloadFaults(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 0)
	k := r.kube()
	namespace := func(name string) error {
		_, err := k.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if err := r.plan.Set(faults.Rule{Operation: "workload", Error: "503", Times: 1}); err != nil {
		t.Fatal(err)
	}
	var status apierrors.APIStatus
	if err := namespace("a"); !errors.As(err, &status) || status.Status().Code != http.StatusServiceUnavailable {
		t.Errorf("a rejected request: got %v", err)
	}
	if err := r.plan.Set(faults.Rule{Operation: "workload", Error: "500", After: true, Times: 1}); err != nil {
		t.Fatal(err)
	}
	if err := namespace("b"); err == nil {
		t.Error("a lost answer arrived")
	}
	if err := namespace("b"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a request with a lost answer was not carried out: %v", err)
	}
}

func TestSharedAddress(t *testing.T) {
	t.Parallel()
	for version, patch := range map[string]string{
		"v1.11.6": "machine:\n  network:\n    interfaces:\n      - interface: eth0\n        dhcp: true\n        vip:\n          ip: %s\n",
		"v1.13.9": "apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: %s\nlink: eth0\n",
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, version, talos.Timing{})
			vip := fmt.Sprintf(patch, r.addr(100)) + "---\ncluster:\n  controlPlane:\n    endpoint: https://" + r.addr(100) + ":6443\n"
			patches := strings.Split(vip, "---\n")
			for _, n := range []int{2, 3, 4} {
				r.powerOn(n)
				r.apply(n, r.config(machine.TypeControlPlane, append(patches, r.hostname(fmt.Sprintf("cp-%d", n)))...))
			}
			c := r.up(2)
			r.bootstrap(c)
			r.voters(c, "cp-2", "cp-3", "cp-4")
			r.nodesReady(3) // through the virtual address, which is in the kubeconfig
			if err := r.fleet.PowerOff(r.machine(2).ID); err != nil {
				t.Fatal(err)
			}
			k := r.kubeFrom(r.client(3))
			r.eventually("another node has the virtual address", func(ctx context.Context) error {
				_, err := readyNodes(ctx, k)
				return err
			})
		})
	}
}

// kubeFrom returns a client with the kubeconfig from one node.
func (r *rack) kubeFrom(c *client.Client) *kubernetes.Clientset {
	r.t.Helper()
	data, err := c.Kubeconfig(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		r.t.Fatal(err)
	}
	k, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

// TestAPIServerRestarts changes what the static pods of a control plane are rendered from.
func TestAPIServerRestarts(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{StaticPods: 200 * time.Millisecond})
	c := r.cluster(1, 0)
	k := r.kube()
	rendered := func(ctx context.Context) (string, error) {
		pod, err := safe.StateGetByID[*k8s.StaticPod](ctx, c.COSI, k8s.APIServerID)
		if err != nil {
			return "", err
		}
		return (&unstructured.Unstructured{Object: pod.TypedSpec().Pod}).GetAnnotations()[constants.AnnotationStaticPodConfigVersion], nil
	}
	before, err := rendered(t.Context())
	if err != nil || before == "" {
		t.Fatalf("the static pod has the version %q: %v", before, err)
	}
	change := "cluster:\n  apiServer:\n    extraArgs:\n      audit-log-maxage: \"31\"\n"
	if _, err := c.ApplyConfiguration(t.Context(), &machineapi.ApplyConfigurationRequest{
		Data: r.config(machine.TypeControlPlane, r.hostname("cp-2"), change), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	}); err != nil {
		t.Fatal(err)
	}
	after, err := rendered(t.Context())
	if err != nil || after == before {
		t.Fatalf("the static pod has the version %q, and %q before: %v", after, before, err)
	}
	version := func(ctx context.Context) error {
		return k.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	}
	if err := version(t.Context()); err != nil {
		t.Errorf("the API server ends before the kubelet has the new pod: %v", err)
	}
	r.eventually("the API server has ended", func(ctx context.Context) error {
		if version(ctx) == nil {
			return errors.New("it still answers")
		}
		return nil
	})
	r.eventually("the kubelet runs the new pod", func(ctx context.Context) error {
		pod, err := k.CoreV1().Pods("kube-system").Get(ctx, "kube-apiserver-cp-2", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := pod.Annotations[constants.AnnotationStaticPodConfigVersion]; got != after {
			return fmt.Errorf("the mirror pod has the version %q, want %q", got, after)
		}
		return nil
	})
}
