package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// env is a namespace of an API server in which functions allocate addresses.
type env struct {
	*testing.T
	server    *apiserver.Server
	config    *rest.Config
	namespace string
	kube      *kube.Client
}

func setUp(t *testing.T) *env {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t, "networknamespaces", "networkconfigurations", "ipallocations", "kubernetesclusters", "machines")
	s := &env{T: t, server: server, config: server.Config(), namespace: server.Namespace(t)}
	s.kube = s.client(s.config)
	return s
}

func (s *env) client(config *rest.Config) *kube.Client {
	s.Helper()
	c, err := kube.New(config, "test", v1alpha1.AddToScheme, v1alpha2.AddToScheme, kube.Events, kube.Kinds(corev1.SchemeGroupVersion, &corev1.EventList{}), leases)
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// replica returns one process of the function. The events that it sends are delivered to itself.
func (s *env) replica(config *rest.Config) *function {
	client := s.client(config)
	f := &function{kube: client, leases: &leaseStore{kube: client, now: time.Now}, now: time.Now}
	f.sender = loop{f}
	return f
}

// silent is a broker that delivers nothing.
type silent struct{}

func (silent) Send(context.Context, event.Event) error { return nil }

type loop struct{ f *function }

func (l loop) Send(ctx context.Context, e event.Event) error {
	_, err := l.f.handle(ctx, e)
	return err
}

// serve has replicas of the function receive the events of the namespace. Each reconciles an object in
// one delivery at a time, as events.Serve does.
func (s *env) serve(replicas int) {
	s.Helper()
	var all []events.Handler
	for range replicas {
		all = append(all, events.Serialize(s.replica(s.config).handle))
	}
	var turn atomic.Int64
	handle := func(ctx context.Context, e event.Event) (*event.Event, error) {
		return all[int(turn.Add(1))%replicas](ctx, e)
	}
	feed.Run(s.T, s.config, s.namespace, handle,
		feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"), Name: "NetworkConfiguration"},
		feed.Kind{Resource: v1alpha2.GroupVersion.WithResource("ipallocations"), Name: "IPAllocation"},
		feed.Kind{Resource: v1alpha2.GroupVersion.WithResource("networknamespaces"), Name: "NetworkNamespace"},
	)
}

// network creates a provisioned network.
func (s *env) network(name string, v4, v6 string, pool v1alpha2.StaticPool) *v1alpha2.NetworkNamespace {
	s.Helper()
	nn := &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	nn.Spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &pool}
	if err := s.kube.Create(s.Context(), nn); err != nil {
		s.Fatal(err)
	}
	before := nn.DeepCopy()
	nn.Status = v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningReady, IPv4Prefix: v4, IPv6Prefix: v6, VLANID: 7}
	if _, err := s.kube.PatchStatus(s.Context(), before, nn); err != nil {
		s.Fatal(err)
	}
	return nn
}

func (s *env) configuration(name, network string, interfaces ...v1alpha1.InterfaceSpec) *v1alpha1.NetworkConfiguration {
	s.Helper()
	nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	nc.Spec.NetworkNamespaceName, nc.Spec.NetworkInterfaces = network, slices.Clone(interfaces)
	for i := range nc.Spec.NetworkInterfaces {
		if one := &nc.Spec.NetworkInterfaces[i]; one.MACAddress == anyMAC {
			one.MACAddress = macFor(name, one.Name)
		}
	}
	if err := s.kube.Create(s.Context(), nc); err != nil {
		s.Fatal(err)
	}
	return nc
}

// anyMAC is a placeholder that configuration replaces with a unique MAC address.
const anyMAC = "02:00:00:00:00:01"

func eth0() v1alpha1.InterfaceSpec {
	return v1alpha1.InterfaceSpec{Name: "eth0", MACAddress: anyMAC}
}

// macFor returns the MAC address of an interface of a NetworkConfiguration.
func macFor(nc, iface string) v1alpha1.MACAddress {
	sum := sha256.Sum256([]byte(nc + "/" + iface))
	return v1alpha1.MACAddress(fmt.Sprintf("02:%x:%x:%x:%x:%x", sum[0:1], sum[1:2], sum[2:3], sum[3:4], sum[4:5]))
}

// awaitReason waits until the condition Ready of a NetworkConfiguration has a reason.
func (s *env) awaitReason(name, reason string) *v1alpha1.NetworkConfiguration {
	s.Helper()
	nc := &v1alpha1.NetworkConfiguration{}
	feed.Until(s.T, name+" is "+reason, func() (bool, string) {
		nc = &v1alpha1.NetworkConfiguration{}
		if err := s.kube.Get(s.Context(), s.namespace, name, nc); err != nil {
			return false, err.Error()
		}
		for _, c := range nc.Status.Conditions {
			if c.Type == "Ready" {
				return c.Reason == reason, c.Reason + ": " + c.Message
			}
		}
		return false, "no condition"
	})
	return nc
}

// awaitWarning waits for an Event of type Warning about an object, with a reason.
func (s *env) awaitWarning(name, reason string) {
	s.Helper()
	feed.Until(s, "a Warning with the reason "+reason, func() (bool, string) {
		events := &corev1.EventList{}
		if err := s.kube.List(s.Context(), s.namespace, "", events); err != nil {
			return false, err.Error()
		}
		said := ""
		for _, e := range events.Items {
			said += e.InvolvedObject.Name + ": " + e.Type + " " + e.Reason + "\n"
			if e.InvolvedObject.Name == name && e.Reason == reason && e.Type == corev1.EventTypeWarning {
				return true, ""
			}
		}
		return false, said
	})
}

// requireConsistentLeases checks that every Lease has one holder that refers to it, and every address one Lease. It
// returns the number of allocated addresses.
func (s *env) requireConsistentLeases() (allocated int) {
	s.Helper()
	allocations, all := &v1alpha2.IPAllocationList{}, &coordinationv1.LeaseList{}
	if err := s.kube.List(s.Context(), s.namespace, "", allocations); err != nil {
		s.Fatal(err)
	}
	if err := s.kube.List(s.Context(), s.namespace, "", all); err != nil {
		s.Fatal(err)
	}
	holders := map[string]string{}
	for _, a := range allocations.Items {
		if a.Status.Address == "" {
			continue
		}
		key := a.Spec.NetworkNamespaceName + "/" + a.Status.Address
		if other, taken := holders[key]; taken {
			s.Errorf("%s was allocated to %s and %s", key, other, a.Name)
		}
		holders[key] = a.Name
	}
	addresses := 0
	for _, l := range all.Items {
		if l.Annotations[annotationMAC] != "" {
			continue
		}
		addresses++
		key := l.Labels[v1alpha2.LabelNetworkNamespace] + "/" + l.Annotations[annotationAddress]
		if holders[key] != l.Annotations[annotationHolder] {
			s.Errorf("Lease %s names %s, but the address is %q's", l.Name, l.Annotations[annotationHolder], holders[key])
		}
	}
	if addresses != len(holders) {
		s.Errorf("%d Leases for %d addresses", addresses, len(holders))
	}
	return len(holders)
}
