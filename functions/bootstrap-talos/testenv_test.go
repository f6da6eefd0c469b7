package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/config"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/bootstrap-talos/addonsource"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/loopback"
	simtalos "github.com/vitistack/stack/tests/sim/talos"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// env is an API server and simulated nodes, with the function. The test plays the layers below: it
// allocates addresses and switches machines on.
type env struct {
	*testing.T
	server    *apiserver.Server
	namespace string
	config    *rest.Config
	kube      *kube.Client
	function  *function
	fleet     *simtalos.Fleet
	plan      *faults.Plan
	net       *loopback.Range

	mu   sync.Mutex
	next int
	held map[string]int
	// seeds are the machine configurations that the hypervisor holds, by the UIDs of Machines.
	seeds map[string][]byte
	// skew is how far the clocks of newly started machines are ahead.
	skew atomic.Int64
	// closed is whether machines get no addresses.
	closed atomic.Bool
	// stopped is whether machines that restart stay off.
	stopped atomic.Bool
	// seedless is whether machines find no configuration, like another server at their address.
	seedless bool
	// temporary is whether the network interfaces of machines have no permanent address.
	temporary bool
	// started is the one of envOptions.
	started func(*env, *v1alpha1.Machine)
}

// envOptions are the options of an env.
type envOptions struct {
	timing simtalos.Timing
	// wrap wraps the transport to the API server, and handle the handler of events.
	wrap   func(http.RoundTripper) http.RoundTripper
	handle func(events.Handler) events.Handler
	// now is the function's clock, or nil for the real one.
	now func() time.Time
	// noResync is whether only changes cause events.
	noResync bool
	// started, if it is not nil, is called between the start of a machine and the status that says so.
	started func(*env, *v1alpha1.Machine)
}

// dropEvents drops all events, for tests that call the function themselves.
func dropEvents(events.Handler) events.Handler {
	return func(context.Context, event.Event) (*event.Event, error) { return nil, nil }
}

// Kinds whose changes cause events for the function.
var (
	clusters = feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("kubernetesclusters"), Name: "KubernetesCluster"}
	machines = feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("machines"), Name: "Machine"}
)

func newEnv(t *testing.T, o envOptions) *env {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t)
	net, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	s := &env{T: t, server: server, namespace: server.Namespace(t), plan: &faults.Plan{}, net: net, next: 2, held: map[string]int{}, seeds: map[string][]byte{}, started: o.started}
	if s.fleet, err = simtalos.Open(t.TempDir(), s.plan, slog.New(slog.DiscardHandler), simtalos.WithTiming(o.timing)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.fleet.Close()
		_ = net.Close()
	})
	s.config = server.Config()
	s.kube = s.client(s.config)
	config := server.Config()
	if o.wrap != nil {
		config.Wrap(o.wrap)
	}
	now := o.now
	if now == nil {
		now = time.Now
	}
	s.function = s.newFunction(s.clientOf(config, plan.FunctionName), now)
	handle := s.function.handle
	if o.handle != nil {
		handle = o.handle(handle)
	}
	handle = events.Serialize(handle, concurrentKind)
	s.create(&v1alpha2.NetworkNamespace{
		ObjectMeta: metav1.ObjectMeta{Name: "net"},
		Spec:       v1alpha2.NetworkNamespaceSpec{IPAllocation: &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic}},
	})
	feed.Run(t, s.config, s.namespace, handle, clusters, machines)
	feed.Run(t, s.config, s.namespace, s.playLowerLayers, machines,
		feed.Kind{Resource: v1alpha2.GroupVersion.WithResource("ipallocations"), Name: "IPAllocation"})
	if !o.noResync {
		s.resync(handle)
	}
	return s
}

// newFunction returns a function with a client and a clock.
func (s *env) newFunction(client *kube.Client, now func() time.Time) *function {
	return newFunction(client, functionOptions{
		manifestsDir: s.TempDir(), talosVersion: plan.DefaultTalosVersion, now: now, addonHosts: addonsource.New(""),
		images: talos.Images{Factory: talos.DefaultFactory, Schematic: talos.DefaultSchematic},
	})
}

func (s *env) client(config *rest.Config) *kube.Client { return s.clientOf(config, "test") }

// clientOf returns a client whose writes have a field manager of a name.
func (s *env) clientOf(config *rest.Config, name string) *kube.Client {
	s.Helper()
	c, err := kube.New(config, name, v1alpha1.AddToScheme, v1alpha2.AddToScheme, core)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// resync reconciles every cluster that needs it, as the function resync does. The test ends after its
// last call.
func (s *env) resync(handle events.Handler) {
	var id atomic.Int64
	var looking sync.WaitGroup
	s.Cleanup(looking.Wait)
	looking.Go(func() {
		for s.Context().Err() == nil {
			time.Sleep(300 * time.Millisecond)
			list := &v1alpha1.KubernetesClusterList{}
			if s.kube.List(s.Context(), s.namespace, "", list) != nil {
				continue
			}
			for _, kc := range list.Items {
				if isUpToDate(&kc) && kc.DeletionTimestamp == nil {
					continue
				}
				look := resyncEvent(kc.Namespace, kc.Name, fmt.Sprint(id.Add(1)))
				look.SetExtension(events.ArrivalTime, time.Now())
				_, _ = handle(s.Context(), look)
			}
		}
	})
}

// resyncEvent returns the event of resync for a cluster.
func resyncEvent(namespace, name, id string) event.Event {
	ref := events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "KubernetesCluster", Namespace: namespace, Name: name}
	return events.NewReconcileRequest("/functions/resync", ref, "uid", id)
}

func (s *env) create(obj kube.Object) {
	s.Helper()
	obj.SetNamespace(s.namespace)
	if err := s.kube.Create(s.Context(), obj); err != nil {
		s.Fatal(err)
	}
}

// cluster returns a cluster with the given numbers of control planes and workers.
func (s *env) cluster(name string, controlPlanes, workers int32) *v1alpha1.KubernetesCluster {
	kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	kc.Spec.Topology = v1alpha1.ClusterTopology{Version: "1.34", ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: controlPlanes}}
	if workers > 0 {
		kc.Spec.Topology.Workers = []v1alpha1.WorkerPool{{Name: "pool", Replicas: workers}}
	}
	return kc
}

func (s *env) get(name string) *v1alpha1.KubernetesCluster {
	s.Helper()
	kc := &v1alpha1.KubernetesCluster{}
	if err := s.kube.Get(s.Context(), s.namespace, name, kc); err != nil {
		s.Fatal(err)
	}
	return kc
}

// change edits the spec of a cluster.
func (s *env) change(name string, edit func(*v1alpha1.KubernetesCluster)) {
	s.Helper()
	err := kube.OnConflict(func() error {
		kc := s.get(name)
		before := kc.DeepCopy()
		edit(kc)
		_, err := s.kube.Patch(s.Context(), before, kc)
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

// machines returns the names of a cluster's Machines.
func (s *env) machines(cluster string) []string {
	s.Helper()
	list := &v1alpha1.MachineList{}
	if err := s.kube.List(s.Context(), s.namespace, v1alpha1.LabelClusterName+"="+cluster, list); err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, m := range list.Items {
		names = append(names, strings.TrimPrefix(m.Name, cluster+"-"))
	}
	slices.Sort(names)
	return names
}

func (s *env) machine(name string) *v1alpha1.Machine {
	s.Helper()
	m := &v1alpha1.Machine{}
	if err := s.kube.Get(s.Context(), s.namespace, name, m); err != nil {
		s.Fatal(err)
	}
	return m
}

// annotate sets an annotation of a Machine.
func (s *env) annotate(name, key, value string) {
	s.Helper()
	if err := s.kube.Merge(s.Context(), s.machine(name), map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}); err != nil {
		s.Fatal(err)
	}
}

// awaitRunning waits until a cluster is Running with exactly these machines.
func (s *env) awaitRunning(name string, machines ...string) *v1alpha1.KubernetesCluster {
	s.Helper()
	var kc *v1alpha1.KubernetesCluster
	feed.Until(s, name+" is Running", func() (bool, string) {
		kc = s.get(name)
		got := s.machines(name)
		ok := isUpToDate(kc) && kc.Status.Phase == v1alpha1.ClusterRunning && (machines == nil || slices.Equal(got, machines))
		left := s.configsLeft(name)
		return ok && len(left) == 0, fmt.Sprintf("%s: %s; machines %v, wanted %v; configurations left of %v", kc.Status.Phase, kc.Status.Message, got, machines, left)
	})
	return kc
}

// configsLeft returns the Machines of a cluster whose hypervisor still has the configuration of a
// configured node.
func (s *env) configsLeft(cluster string) (left []string) {
	s.Helper()
	list := &v1alpha1.MachineList{}
	if err := s.kube.List(s.Context(), s.namespace, v1alpha1.LabelClusterName+"="+cluster, list); err != nil {
		s.Fatal(err)
	}
	for _, m := range list.Items {
		if plan.IsInstalled(&m) && meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionMachineConfigRemoved) {
			left = append(left, m.Name)
		}
	}
	return left
}

// awaitReason waits until Ready of a cluster has a reason, with these words in its message.
func (s *env) awaitReason(name, reason string, words ...string) {
	s.Helper()
	feed.Until(s, fmt.Sprintf("%s says %s", name, reason), func() (bool, string) {
		kc := s.get(name)
		for _, c := range kc.Status.Conditions {
			if c.Type == v1alpha1.ConditionReady {
				ok := c.Reason == reason
				for _, w := range words {
					ok = ok && strings.Contains(c.Message, w)
				}
				return ok, c.Reason + ": " + c.Message
			}
		}
		return false, "no condition Ready"
	})
}

func (s *env) secret(name string) *corev1.Secret {
	s.Helper()
	secret := &corev1.Secret{}
	if err := s.kube.Get(s.Context(), s.namespace, name, secret); err != nil {
		s.Fatal(err)
	}
	return secret
}

// workload returns a client for a cluster's own API, with the kubeconfig that its owner gets.
func (s *env) workload(cluster string) *kubernetes.Clientset {
	s.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(s.secret(cluster + "-kubeconfig").Data[kubeconfigKey])
	if err != nil {
		s.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	return client
}

// nodes returns the names of the Ready nodes, and of all nodes.
func (s *env) nodes(cluster string) (ready, all []string) {
	s.Helper()
	list, err := s.workload(cluster).CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, n := range list.Items {
		name := strings.TrimPrefix(n.Name, cluster+"-")
		all = append(all, name)
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready = append(ready, name)
			}
		}
	}
	return ready, all
}

// members returns the names of etcd's voters, as a control plane reports them.
func (s *env) members(cluster, controlPlane string) []string {
	s.Helper()
	ctx, c, end, err := talos.Connect(s.Context(), plan.Address(s.machine(cluster+"-"+controlPlane)), s.access(cluster), time.Minute)
	if err != nil {
		s.Fatal(err)
	}
	defer end()
	list, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{})
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, m := range list.Messages[0].Members {
		names = append(names, strings.TrimPrefix(m.Hostname, cluster+"-"))
	}
	slices.Sort(names)
	return names
}

// access returns credentials of an administrator for the nodes of a cluster.
func (s *env) access(cluster string) *talos.Credentials {
	s.Helper()
	bundle, err := talos.DecodeBundle(s.secret(cluster + "-talos-secrets").Data[pkiKey])
	if err != nil {
		s.Fatal(err)
	}
	a, err := talos.NewCredentials(bundle)
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// activeConfig returns the configuration that a node runs.
func (s *env) activeConfig(cluster, node string) string {
	s.Helper()
	ctx, c, end, err := talos.Connect(s.Context(), plan.Address(s.machine(cluster+"-"+node)), s.access(cluster), time.Minute)
	if err != nil {
		s.Fatal(err)
	}
	defer end()
	config, err := safe.StateGetByID[*resources.MachineConfig](ctx, c.COSI, resources.ActiveID)
	if err != nil {
		return err.Error()
	}
	data, err := talos.Encode(config.Provider())
	if err != nil {
		s.Fatal(err)
	}
	return string(data)
}

// reconcile requests a full reconcile of a cluster.
func (s *env) reconcile(cluster string) {
	s.Helper()
	for range 5 {
		if _, err := s.function.handle(s.Context(), resyncEvent(s.namespace, cluster, "look")); err == nil {
			return
		}
	}
}
