package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// env is a namespace of a real API server, with the function.
type env struct {
	t         *testing.T
	kube      *kube.Client
	config    *rest.Config
	namespace string
	f         *function
	sent      *feed.Outbox
	clock     *feed.Clock
	// reporter is that of the functions made after it is set. The first one has none.
	reporter *backendhealth.Reporter
}

// sentNames returns the objects for which events were sent since the last call.
func (w *env) sentNames(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, e := range w.sent.Take() {
		ref, err := events.RefOf(e)
		if err != nil || e.Type() != events.TypeResync {
			t.Errorf("sent %v, error %v", e, err)
		}
		names = append(names, ref.Kind+" "+ref.Name)
	}
	return names
}

// newEnv returns an env whose function uses the servers at the URLs, with the given environment
// variables.
func newEnv(t *testing.T, urls []string, environment ...string) *env {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t, "networknamespaces", "networkconfigurations", "kubernetesclusters")
	config := server.Config()
	client, err := kube.New(config, name, append(slices.Clone(kinds), kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.LeaseList{}))...)
	if err != nil {
		t.Fatal(err)
	}
	w := &env{
		t: t, kube: client, config: config, namespace: server.Namespace(t),
		sent: &feed.Outbox{}, clock: feed.NewClock(),
	}
	w.f = w.function(urls, environment...)
	return w
}

// function returns another replica of the function.
func (w *env) function(urls []string, environment ...string) *function {
	w.t.Helper()
	values := map[string]string{"POD_NAMESPACE": w.namespace, "KEA_TIMEOUT_SECONDS": "10", allowedVariable: "0.0.0.0/0"}
	for i, url := range urls {
		values[[]string{"KEA_URL", "KEA_SECONDARY_URL"}[i]] = url
	}
	for _, assignment := range environment {
		key, value, _ := strings.Cut(assignment, "=")
		values[key] = value
	}
	getenv := httpclient.Mounted(func(key string) string { return values[key] })
	s, err := readSettings(getenv)
	if err != nil {
		w.t.Fatal(err)
	}
	controls, err := s.connect(getenv, func(namespace, name string) (map[string][]byte, error) {
		secret := &corev1.Secret{}
		err := w.kube.Get(w.t.Context(), namespace, name, secret)
		return secret.Data, err
	}, publishTo(w.reporter))
	if err != nil {
		w.t.Fatal(err)
	}
	return &function{
		kube: w.kube, sender: w.sent, clients: controls, reporter: w.reporter, now: w.clock.Now,
		lock:    kea.NewLock(w.kube, s.namespace, w.clock.Now),
		classes: s.classes, allowed: s.allowed, strict: s.strict,
		namespace: s.namespace, shared: s.shared,
	}
}

// network creates a provisioned NetworkNamespace with a prefix, whose first address is the gateway.
// change edits it before.
func (w *env) network(name, prefix string, change func(*v1alpha2.NetworkNamespace)) *v1alpha2.NetworkNamespace {
	w.t.Helper()
	nn := &v1alpha2.NetworkNamespace{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1alpha2.NetworkNamespaceSpec{
			NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "manual", Manual: &v1alpha2.ManualSegment{IPv4CIDR: v1alpha2.IPv4CIDR(prefix), VLANID: 42}},
			IPAllocation:        &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationDHCP},
		},
	}
	status := v1alpha2.NetworkNamespaceStatus{
		ProvisioningPhase: v1alpha2.ProvisioningReady, IPv4Prefix: prefix, VLANID: 42,
		IPv4Gateway: strings.Replace(prefix, ".0/", ".1/", 1), DNS: []string{"10.9.9.9"},
	}
	status.IPv4Gateway, _, _ = strings.Cut(status.IPv4Gateway, "/")
	nn.Status = status
	if change != nil {
		change(nn)
	}
	status, nn.Status = nn.Status, v1alpha2.NetworkNamespaceStatus{}
	w.must(w.kube.Create(w.t.Context(), nn))
	before := nn.DeepCopy()
	nn.Status = status
	_, err := w.kube.PatchStatus(w.t.Context(), before, nn)
	w.must(err)
	return nn
}

// configuration creates a NetworkConfiguration with one interface for each MAC address, called eth0,
// eth1 and so on. change edits it before.
func (w *env) configuration(name string, macs []string, change func(*v1alpha1.NetworkConfiguration)) *v1alpha1.NetworkConfiguration {
	w.t.Helper()
	nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	for i, mac := range macs {
		nc.Spec.NetworkInterfaces = append(nc.Spec.NetworkInterfaces,
			v1alpha1.InterfaceSpec{Name: fmt.Sprintf("eth%d", i), MACAddress: v1alpha1.MACAddress(mac)})
	}
	if change != nil {
		change(nc)
	}
	w.must(w.kube.Create(w.t.Context(), nc))
	return nc
}

func (w *env) get(name string) *v1alpha1.NetworkConfiguration {
	w.t.Helper()
	nc := &v1alpha1.NetworkConfiguration{}
	w.must(w.kube.Get(w.t.Context(), w.namespace, name, nc))
	return nc
}

// deliver has the function handle an event about an object.
func (w *env) deliver(kind, name, eventType string) error {
	e := about(kind, w.namespace, name, eventType)
	nc := &v1alpha1.NetworkConfiguration{}
	if kind == "NetworkConfiguration" && events.IsChange(eventType) && w.kube.Get(w.t.Context(), w.namespace, name, nc) == nil {
		w.must(feed.Carry(&e, nc))
	}
	_, err := w.f.handle(w.t.Context(), e)
	return err
}

// deliver delivers an event without an object to a process.
func deliver(ctx context.Context, f *function, kind, namespace, name, eventType string) error {
	_, err := f.handle(ctx, about(kind, namespace, name, eventType))
	return err
}

func about(kind, namespace, name, eventType string) event.Event {
	e := event.New()
	e.SetID("1")
	e.SetSource("test")
	e.SetType(eventType)
	events.Ref{APIVersion: "vitistack.io/v1", Kind: kind, Namespace: namespace, Name: name}.Set(&e, "")
	return e
}

// reconcile delivers an event about a NetworkConfiguration, and returns the object.
func (w *env) reconcile(name string) *v1alpha1.NetworkConfiguration {
	w.t.Helper()
	w.must(w.deliver("NetworkConfiguration", name, events.TypeRefUpdate))
	return w.get(name)
}

// delete requests the deletion of a NetworkConfiguration.
func (w *env) delete(name string) {
	w.t.Helper()
	w.must(w.kube.Delete(w.t.Context(), w.get(name)))
}

// isDeleted reports whether a NetworkConfiguration does not exist.
func (w *env) isDeleted(name string) bool {
	w.t.Helper()
	err := w.kube.Get(w.t.Context(), w.namespace, name, &v1alpha1.NetworkConfiguration{})
	if err != nil && !kube.NotFound(err) {
		w.t.Fatal(err)
	}
	return err != nil
}

// await waits until so returns true.
func (w *env) await(what string, so func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			w.t.Fatalf("timed out waiting for %s", what)
		case <-tick.C:
		}
	}
}

func (w *env) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// ready returns status, reason and message of the condition Ready.
func ready(nc *v1alpha1.NetworkConfiguration) string {
	return condition(nc, v1alpha1.ConditionReady)
}

func condition(nc *v1alpha1.NetworkConfiguration, kind string) string {
	c := meta.FindStatusCondition(nc.Status.Conditions, kind)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// addressOf returns the address of an interface by its index.
func addressOf(t *testing.T, nc *v1alpha1.NetworkConfiguration, i int) string {
	t.Helper()
	if len(nc.Status.NetworkInterfaces) <= i || len(nc.Status.NetworkInterfaces[i].IPv4Addresses) != 1 {
		t.Fatalf("%s has no address for interface %d: Ready %s", nc.Name, i, ready(nc))
	}
	return nc.Status.NetworkInterfaces[i].IPv4Addresses[0]
}

// expand replaces the placeholder of the namespace in a text.
func expand(text, namespace string) string { return strings.ReplaceAll(text, "{ns}", namespace) }
