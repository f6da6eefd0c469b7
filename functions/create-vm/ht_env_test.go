package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// site is a hypervisor for the contract: how to reach it, and what is on it.
type site struct {
	// provider is a MachineProvider of the site.
	provider string
	// vms are the identities of the virtual machines that were made for a Machine.
	vms func(m *v1alpha1.Machine) []string
	// left is everything at the site that bears a Machine's name or UID, in words.
	left func(m *v1alpha1.Machine) []string
	// foreign makes virtual machines for somebody else in the place that a Machine
	// has claimed, or else would claim, and returns whether they are still there and
	// as they were.
	foreign func(m *v1alpha1.Machine) (untouched func() bool)
	// makes is the request that makes the first virtual machine, and evicted the
	// reason of the condition Ready of a Machine whose place is taken.
	makes, evicted string
	// starts is how often a Machine's virtual machine has been started.
	starts func(m *v1alpha1.Machine) int
	// held is whether the first configuration of a Machine's guest, if it has one, is
	// anywhere at the hypervisor. found is what the guest found at its last start.
	held  func(m *v1alpha1.Machine) bool
	found func(m *v1alpha1.Machine) string
	// sizes are the CPUs and the size of the disk root of a Machine as made.
	sizes func(m *v1alpha1.Machine) (cpus int, root string)
}

// ht drives Machines on a site, in a namespace of an API server with a network, in which it plays
// layer 2.
type ht struct {
	*testing.T
	namespace string
	kube      *kube.Client
	config    *rest.Config
	site      *site
	clock     clock
	// newHandler starts the function, with all requests through a wire, and returns its handler.
	newHandler func(*wire) events.Handler
}

// newHT creates a network in a namespace, and plays layer 2 there. The caller sets site and
// newHandler.
func newHT(t *testing.T, config *rest.Config, client *kube.Client, namespace string) *ht {
	t.Helper()
	r := &ht{T: t, namespace: namespace, kube: client, config: config}
	r.create(&v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Name: "net"}})
	feed.Run(t, config, namespace, r.layer2(), feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"), Name: "NetworkConfiguration"})
	return r
}

// clock is the time of the processes of a rig. It runs, and can be advanced, so that no
// test waits for the end of a back-off.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// machine makes a small Machine on the site.
func (r *ht) machine(name string) *v1alpha1.Machine {
	r.Helper()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.site.provider},
		CloudInit: &v1alpha1.CloudInit{UserData: "#cloud-config\n" + strings.Repeat("# long\n", 300)},
	}}
	r.create(m)
	return m
}

// look makes an event that asks for a look at a Machine.
func look(namespace, name string) event.Event {
	e := event.New()
	e.SetID("1")
	e.SetSource("/test")
	e.SetType(events.TypeResync)
	events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine", Namespace: namespace, Name: name}.Set(&e, "")
	return e
}

// drive delivers events about a Machine to new processes until it is as done wants
// it. m is nil once the Machine is gone.
func (r *ht) drive(name string, w *wire, what string, done func(m *v1alpha1.Machine) bool) *v1alpha1.Machine {
	r.Helper()
	// soon is the broker's first pause between two tries.
	const soon, pause, patience = 20 * time.Millisecond, 100 * time.Millisecond, 90 * time.Second
	handle := r.newHandler(w)
	for began := time.Now(); ; {
		_, err := handle(r.Context(), look(r.namespace, name))
		if w.revived() {
			handle = r.newHandler(w)
			continue
		}
		m := &v1alpha1.Machine{}
		if err := r.kube.Get(r.Context(), r.namespace, name, m); kube.NotFound(err) {
			m = nil
		} else if err != nil {
			r.Fatal(err)
		}
		if done(m) {
			return m
		}
		if m != nil && m.Status.Failures > 0 {
			r.clock.advance(max(m.Status.NextCheckTime.Sub(r.clock.now()), 0))
		}
		if time.Since(began) > patience {
			r.Fatalf("%s %s (%s): not after %s: %v; %+v", name, what, w.harm, patience, err, m)
		}
		if err == nil {
			time.Sleep(pause)
		} else {
			time.Sleep(soon)
		}
	}
}

// edit changes the spec of a Machine.
func (r *ht) edit(name string, change func(*v1alpha1.Machine)) {
	r.Helper()
	err := kube.OnConflict(func() error {
		m := &v1alpha1.Machine{}
		if err := r.kube.Get(r.Context(), r.namespace, name, m); err != nil {
			return err
		}
		before := m.DeepCopy()
		change(m)
		_, err := r.kube.Patch(r.Context(), before, m)
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
}

func running(m *v1alpha1.Machine) bool {
	return m != nil && m.Status.Phase == v1alpha1.MachineRunning && ready("MachineRunning")(m) && m.Status.ObservedGeneration == m.Generation
}

func gone(m *v1alpha1.Machine) bool { return m == nil }

// one fails unless exactly one virtual machine was made for a Machine.
func (r *ht) one(m *v1alpha1.Machine, w *wire) {
	r.Helper()
	if vms := r.site.vms(m); len(vms) != 1 {
		r.Errorf("%s (%s): got virtual machines %v, want one", m.Name, w.harm, vms)
	}
}

// clean deletes a Machine, and fails if anything is left of it at the site.
func (r *ht) clean(m *v1alpha1.Machine, w *wire) {
	r.Helper()
	if err := r.kube.Delete(r.Context(), m); err != nil {
		r.Error(err)
	}
	r.drive(m.Name, w, "is gone", gone)
	if left := r.site.left(m); len(left) > 0 {
		r.Errorf("%s (%s): left behind: %v", m.Name, w.harm, left)
	}
}

// aNode is the Machine of a node.
func aNode(name string) *v1alpha1.Machine {
	return &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelClusterName: "shop"}, Annotations: map[string]string{}},
		Spec: v1alpha1.MachineSpec{Template: "small", CloudInit: &v1alpha1.CloudInit{
			SecretRef: &v1alpha1.CloudInitSecretReference{Name: v1alpha1.MachineConfigSecretName(name), Key: v1alpha1.MachineConfigKey},
		}},
	}
}

// provide plays bootstrap-talos: it writes the configuration of a node, and says so.
func (r *ht) provide(m *v1alpha1.Machine, config string) {
	r.Helper()
	r.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: m.MachineConfigSecret(), OwnerReferences: kube.Owned(m, v1alpha1.GroupVersion.String(), "Machine")},
		Data:       map[string][]byte{v1alpha1.MachineConfigKey: []byte(config)},
	})
	r.edit(m.Name, func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMachineConfig, fmt.Sprintf("%x", sha256.Sum256([]byte(config))))
		delete(m.Annotations, v1alpha1.AnnotationInstalled)
	})
}

// installed plays bootstrap-talos: it has seen the node with its configuration.
func (r *ht) installed(m *v1alpha1.Machine) {
	r.Helper()
	r.edit(m.Name, func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationInstalled, "true")
		delete(m.Annotations, v1alpha1.AnnotationMachineConfig)
	})
}

const unserved = "unserved"

// layer2 gives every interface with a MAC address the next address, but where the
// description is unserved.
func (r *ht) layer2() events.Handler {
	var next atomic.Int32
	next.Store(9)
	return func(ctx context.Context, in event.Event) (*event.Event, error) {
		ref, err := events.RefOf(in)
		if err != nil {
			return nil, err
		}
		return nil, kube.OnConflict(func() error {
			nc := &v1alpha1.NetworkConfiguration{}
			if err := r.kube.Get(ctx, ref.Namespace, ref.Name, nc); err != nil || nc.DeletionTimestamp != nil || nc.Spec.Description == unserved {
				return nil
			}
			before := nc.DeepCopy()
			nc.Status.Phase, nc.Status.NetworkNamespaceName = v1alpha1.NetworkConfigurationReady, "net"
			nc.Status.ObservedGeneration = nc.Generation
			nc.Status.NetworkInterfaces = slices.DeleteFunc(nc.Status.NetworkInterfaces, func(st v1alpha1.InterfaceStatus) bool {
				return !slices.ContainsFunc(nc.Spec.NetworkInterfaces, func(i v1alpha1.InterfaceSpec) bool {
					return i.Name == st.Name && i.MACAddress != "" && i.MACAddress.Normalized() == st.MACAddress.Normalized()
				})
			})
			for _, i := range nc.Spec.NetworkInterfaces {
				has := slices.ContainsFunc(nc.Status.NetworkInterfaces, func(st v1alpha1.InterfaceStatus) bool { return st.Name == i.Name })
				if i.MACAddress == "" || has {
					continue
				}
				nc.Status.NetworkInterfaces = append(nc.Status.NetworkInterfaces, v1alpha1.InterfaceStatus{
					Name: i.Name, MACAddress: i.MACAddress, IPAllocated: true, AllocationMethod: v1alpha2.AllocationStatic, VLAN: "200",
					IPv4Addresses: []string{fmt.Sprintf("192.168.10.%d", next.Add(1))}, IPv4Subnet: "192.168.10.0/24", IPv4Gateway: "192.168.10.1",
				})
			}
			_, err := r.kube.PatchStatus(ctx, before, nc)
			return err
		})
	}
}

func (r *ht) create(obj kube.Object) {
	r.Helper()
	obj.SetNamespace(r.namespace)
	if err := r.kube.Create(r.Context(), obj); err != nil {
		r.Fatal(err)
	}
}

func ready(reason string) func(*v1alpha1.Machine) bool {
	return func(m *v1alpha1.Machine) bool {
		return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "Ready" && c.Reason == reason })
	}
}
