package hypervisortest

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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Env drives Machines on a site, in a namespace of an API server with a network.
type Env struct {
	*testing.T
	Namespace string
	Kube      *kube.Client
	Config    *rest.Config
	Site      *Site
	Clock     Clock
	// NewHandler starts the function, with all requests through a wire, and returns its handler.
	NewHandler func(*Wire) events.Handler
}

// New returns an Env in a namespace, with a network. The caller sets Site and NewHandler, and has
// Layer2 receive the events of NetworkConfigurations.
func New(t *testing.T, config *rest.Config, client *kube.Client, namespace string) *Env {
	t.Helper()
	r := &Env{T: t, Namespace: namespace, Kube: client, Config: config}
	r.Create(&v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Name: "net"}})
	return r
}

// Clock is the time of the function. It runs, and can be advanced, so that no test waits for the end
// of a back-off.
type Clock struct{ ahead atomic.Int64 }

// Now returns the time.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// CreateMachine creates a small Machine on the site.
func (r *Env) CreateMachine(name string) *v1alpha1.Machine {
	r.Helper()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider},
		CloudInit: &v1alpha1.CloudInit{UserData: "#cloud-config\n" + strings.Repeat("# long\n", 300)},
	}}
	r.Create(m)
	return m
}

// Drive delivers resync events for a Machine until done accepts it, and returns it. It starts the
// function again when w has ended it. m is nil once the Machine is gone. what names the condition
// for the message of a failure.
func (r *Env) Drive(name string, w *Wire, what string, done func(m *v1alpha1.Machine) bool) *v1alpha1.Machine {
	r.Helper()
	// soon is the broker's first pause between two tries.
	const soon, pause, patience = 20 * time.Millisecond, 100 * time.Millisecond, 90 * time.Second
	handle := r.NewHandler(w)
	for began := time.Now(); ; {
		_, err := handle(r.Context(), ResyncEvent(r.Namespace, name))
		if w.Revive() {
			handle = r.NewHandler(w)
			continue
		}
		m := &v1alpha1.Machine{}
		if err := r.Kube.Get(r.Context(), r.Namespace, name, m); kube.NotFound(err) {
			m = nil
		} else if err != nil {
			r.Fatal(err)
		}
		if done(m) {
			return m
		}
		if m != nil && m.Status.Failures > 0 {
			r.Clock.Advance(max(m.Status.NextCheckTime.Sub(r.Clock.Now()), 0))
		}
		if time.Since(began) > patience {
			r.Fatalf("%s %s (%s): not after %s: %v; %+v", name, what, w.Fault, patience, err, m)
		}
		if err == nil {
			time.Sleep(pause)
		} else {
			time.Sleep(soon)
		}
	}
}

// editRetries is how a change of an object that create-vm writes at the same time is repeated, for about five seconds.
var editRetries = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Jitter: 0.5, Steps: 12}

// Edit changes the spec of a Machine.
func (r *Env) Edit(name string, change func(*v1alpha1.Machine)) {
	r.Helper()
	Change(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: name}}, change)
}

// Change reads the object that has the name of obj, changes everything but its status, and returns what is stored then. It reads the object again
// after a conflict with a write of create-vm or of the hypervisor.
func Change[T kube.Object](r *Env, obj T, change func(T)) T {
	r.Helper()
	var now T
	err := retry.OnError(editRetries, kube.Conflict, func() error {
		now = obj.DeepCopyObject().(T)
		if err := r.Kube.Get(r.Context(), obj.GetNamespace(), obj.GetName(), now); err != nil {
			return err
		}
		before := now.DeepCopyObject().(T)
		change(now)
		_, err := r.Kube.Patch(r.Context(), before, now)
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return now
}

// RequireOneVM fails unless exactly one virtual machine was created for a Machine.
func (r *Env) RequireOneVM(m *v1alpha1.Machine, w *Wire) {
	r.Helper()
	if vms := r.Site.VMs(m); len(vms) != 1 {
		r.Errorf("%s (%s): got virtual machines %v, want one", m.Name, w.Fault, vms)
	}
}

// DeleteMachine deletes a Machine, and fails if anything is left of it at the site.
func (r *Env) DeleteMachine(m *v1alpha1.Machine, w *Wire) {
	r.Helper()
	if err := r.Kube.Delete(r.Context(), m); err != nil {
		r.Error(err)
	}
	r.Drive(m.Name, w, "is gone", IsGone)
	if left := r.Site.Left(m); len(left) > 0 {
		r.Errorf("%s (%s): left behind: %v", m.Name, w.Fault, left)
	}
}

// ProvideMachineConfig plays bootstrap-talos: it provides the machine configuration of a node, in place of an earlier one.
func (r *Env) ProvideMachineConfig(m *v1alpha1.Machine, config string) {
	r.Helper()
	secret := &corev1.Secret{}
	err := r.Kube.Get(r.Context(), r.Namespace, m.MachineConfigSecret(), secret)
	before, data := secret.DeepCopy(), map[string][]byte{v1alpha1.MachineConfigKey: []byte(config)}
	if secret.Data = data; err == nil {
		_, err = r.Kube.Patch(r.Context(), before, secret)
	} else if kube.NotFound(err) {
		err = r.Kube.Create(r.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: m.MachineConfigSecret(), OwnerReferences: kube.Owned(m, v1alpha1.GroupVersion.String(), "Machine")}, Data: data,
		})
	}
	if err != nil {
		r.Fatal(err)
	}
	r.Edit(m.Name, func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMachineConfig, fmt.Sprintf("%x", sha256.Sum256([]byte(config))))
		delete(m.Annotations, v1alpha1.AnnotationInstalled)
	})
}

// MarkInstalled plays bootstrap-talos: it records that the node has its machine configuration.
func (r *Env) MarkInstalled(m *v1alpha1.Machine) {
	r.Helper()
	r.Edit(m.Name, func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationInstalled, "true")
		delete(m.Annotations, v1alpha1.AnnotationMachineConfig)
	})
}

// Layer2 returns a handler that plays layer 2: it allocates the next address to every interface with a MAC address, unless the description of
// its NetworkConfiguration is Unserved.
func (r *Env) Layer2() events.Handler {
	var next atomic.Int32
	next.Store(9)
	return func(ctx context.Context, in event.Event) (*event.Event, error) {
		ref, err := events.RefOf(in)
		if err != nil {
			return nil, err
		}
		return nil, kube.OnConflict(func() error {
			nc := &v1alpha1.NetworkConfiguration{}
			if err := r.Kube.Get(ctx, ref.Namespace, ref.Name, nc); err != nil || nc.DeletionTimestamp != nil || nc.Spec.Description == Unserved {
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
			_, err := r.Kube.PatchStatus(ctx, before, nc)
			return err
		})
	}
}

// Create creates an object in the namespace.
func (r *Env) Create(obj kube.Object) {
	r.Helper()
	obj.SetNamespace(r.Namespace)
	if err := r.Kube.Create(r.Context(), obj); err != nil {
		r.Fatal(err)
	}
}
