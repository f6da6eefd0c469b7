package main

import (
	"errors"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// env is a namespace of a real API server, with the function.
type env struct {
	t         *testing.T
	server    *apiserver.Server
	config    *rest.Config
	kube      *kube.Client
	namespace string
	f         *function
	clock     *feed.Clock
	sent      *feed.Outbox
}

// sentTypes returns the types of the events that the function has sent.
func (w *env) sentTypes() (types []string) {
	for _, e := range w.sent.Events() {
		types = append(types, e.Type())
	}
	return types
}

// newEnv returns an env whose function has these sources in addition to manual.
func newEnv(t *testing.T, sources map[string]provider.Interface) *env {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t, "networknamespaces", "networkconfigurations", "ipallocations", "kubernetesclusters", "networkpools")
	w := &env{t: t, server: server, config: server.Config(), namespace: server.Namespace(t), clock: feed.NewClock(), sent: &feed.Outbox{}}
	w.kube = w.client(w.config)
	all := config{getenv: func(string) string { return "" }}.providers()
	for name, s := range sources {
		all[name] = s
	}
	w.f = &function{kube: w.kube, providers: all, sender: w.sent, now: w.clock.Now, datacenters: w.separateDataCentres(), optionalPools: true}
	return w
}

// separateDataCentres returns the data centre of this test, which shares no bridge with those of other tests.
func (w *env) separateDataCentres() plan.Datacenters {
	return plan.Datacenters{v1alpha2.Identifier(w.namespace): true}
}

func (w *env) client(config *rest.Config) *kube.Client {
	w.t.Helper()
	c, err := kube.New(config, name, append(slices.Clone(kinds), kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}))...)
	w.must(err)
	return c
}

func (w *env) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// network creates a network in the data centre of this test.
func (w *env) network(name string, spec v1alpha2.NetworkNamespaceSpec) *v1alpha2.NetworkNamespace {
	w.t.Helper()
	nn := &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: spec}
	if nn.Spec.DatacenterIdentifier == "" {
		nn.Spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
	}
	w.must(w.kube.Create(w.t.Context(), nn))
	return nn
}

func manualSpec(prefix, gateway string, vlan v1alpha2.VLANID) v1alpha2.NetworkNamespaceSpec {
	return v1alpha2.NetworkNamespaceSpec{NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "manual", Manual: &v1alpha2.ManualSegment{
		IPv4CIDR: v1alpha2.IPv4CIDR(prefix), IPv4Gateway: v1alpha2.IPv4Address(gateway), VLANID: vlan,
	}}}
}

func asks(provider string) v1alpha2.NetworkNamespaceSpec {
	return v1alpha2.NetworkNamespaceSpec{NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: provider}}
}

// deliver has the function handle an event about an object, and returns its error.
func (w *env) deliver(kind, name, eventType string) error {
	w.t.Helper()
	e := event.New()
	e.SetType(eventType)
	e.SetSource("https://kubernetes")
	e.SetID("1")
	events.Ref{APIVersion: "vitistack.io/v1alpha2", Kind: kind, Namespace: w.namespace, Name: name}.Set(&e, "")
	_, err := w.f.handle(w.t.Context(), e)
	return err
}

// reconcile delivers an event about a network, and returns the network.
func (w *env) reconcile(name string) *v1alpha2.NetworkNamespace {
	w.t.Helper()
	if err := w.deliver(kindNetwork, name, events.TypeRefUpdate); err != nil && !errors.Is(err, errRedeliver) {
		w.t.Fatal(err)
	}
	return w.get(name)
}

// get returns a network, or nil if it does not exist.
func (w *env) get(name string) *v1alpha2.NetworkNamespace {
	w.t.Helper()
	nn := &v1alpha2.NetworkNamespace{}
	err := w.kube.Get(w.t.Context(), w.namespace, name, nn)
	if kube.NotFound(err) {
		return nil
	}
	w.must(err)
	return nn
}

func (w *env) delete(obj kube.Object) {
	w.t.Helper()
	w.must(w.kube.Delete(w.t.Context(), obj))
}

// change edits the spec of a network.
func (w *env) change(name string, how func(*v1alpha2.NetworkNamespace)) {
	w.t.Helper()
	nn := w.get(name)
	before := nn.DeepCopy()
	how(nn)
	_, err := w.kube.Patch(w.t.Context(), before, nn)
	w.must(err)
}

// changeUnvalidated edits the spec of a network in a way that the API server now rejects, but accepted in
// an earlier version.
func (w *env) changeUnvalidated(name string, how func(*v1alpha2.NetworkNamespace)) {
	w.t.Helper()
	nn := w.get(name)
	before, status := nn.DeepCopy(), nn.Status
	nn.Status.ProvisioningPhase = v1alpha2.ProvisioningPending
	_, err := w.kube.PatchStatus(w.t.Context(), before, nn)
	w.must(err)
	w.change(name, how)
	nn = w.get(name)
	before, nn.Status = nn.DeepCopy(), status
	_, err = w.kube.PatchStatus(w.t.Context(), before, nn)
	w.must(err)
}

// configuration creates a NetworkConfiguration with an address of a network.
func (w *env) configuration(name, network, cluster string, status v1alpha1.InterfaceStatus) *v1alpha1.NetworkConfiguration {
	w.t.Helper()
	nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	nc.Spec.NetworkNamespaceName, nc.Spec.ClusterIdentifier = network, cluster
	w.must(w.kube.Create(w.t.Context(), nc))
	before := nc.DeepCopy()
	status.Name = "eth0"
	nc.Status = v1alpha1.NetworkConfigurationStatus{NetworkNamespaceName: network}
	nc.Status.SetInterfaces([]v1alpha1.InterfaceStatus{status})
	_, err := w.kube.PatchStatus(w.t.Context(), before, nc)
	w.must(err)
	return nc
}

// allocation creates an IPAllocation with an address.
func (w *env) allocation(name, network, configuration, address string) *v1alpha2.IPAllocation {
	w.t.Helper()
	a := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	a.Spec.NetworkNamespaceName, a.Spec.NetworkConfigurationName = network, configuration
	w.must(w.kube.Create(w.t.Context(), a))
	before := a.DeepCopy()
	a.Status = v1alpha2.IPAllocationStatus{Phase: v1alpha2.IPAllocationAllocated, Address: address}
	_, err := w.kube.PatchStatus(w.t.Context(), before, a)
	w.must(err)
	return a
}

// ready returns the status, reason and message of the condition Ready.
func ready(nn *v1alpha2.NetworkNamespace) (status metav1.ConditionStatus, reason, message string) {
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Status, c.Reason, c.Message
	}
	return "", "", ""
}

// expect checks phase and reason of a network, and returns the message.
func (w *env) expect(nn *v1alpha2.NetworkNamespace, phase v1alpha2.ProvisioningPhase, reason string) string {
	w.t.Helper()
	if nn == nil {
		w.t.Fatal("the network is deleted")
	}
	_, got, message := ready(nn)
	if nn.Status.ProvisioningPhase != phase || got != reason {
		w.t.Errorf("%s: got %s %s (%s), want %s %s", nn.Name, nn.Status.ProvisioningPhase, got, message, phase, reason)
	}
	return message
}

// writes counts the requests of a client that write.
type writes struct {
	http.RoundTripper
	mu sync.Mutex
	// n counts all writes, and done the successful ones.
	n, done int
	// left is the number of writes until the process dies. A negative number is never.
	left int
}

var errDead = errors.New("the process is dead")

func (r *writes) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	if req.Method != http.MethodGet {
		r.n++
	}
	dead := r.left >= 0 && (r.n > r.left)
	r.mu.Unlock()
	if dead {
		return nil, errDead
	}
	res, err := r.RoundTripper.RoundTrip(req)
	if err == nil && req.Method != http.MethodGet && res.StatusCode/100 == 2 {
		r.mu.Lock()
		r.done++
		r.mu.Unlock()
	}
	return res, err
}

// countingClient returns a client that counts its writes. If left is not negative, it dies after that number
// of writes.
func (w *env) countingClient(left int) (*kube.Client, *writes) {
	w.t.Helper()
	config := rest.CopyConfig(w.config)
	r := &writes{left: left}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { r.RoundTripper = rt; return r })
	return w.client(config), r
}
