package hypervisortest

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Restore plays a restore of a Machine, or a move to another management cluster: the Machine ends without its function, and
// exists again with another UID and its former ones.
func (r *Env) Restore(m *v1alpha1.Machine, former string) *v1alpha1.Machine {
	r.Helper()
	r.Edit(m.Name, func(m *v1alpha1.Machine) { m.Finalizers = nil })
	if err := r.Kube.Delete(r.Context(), m); err != nil {
		r.Fatal(err)
	}
	again := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Labels: m.Labels, Annotations: map[string]string{v1alpha1.AnnotationFormerUIDs: former},
	}, Spec: *m.Spec.DeepCopy()}
	r.Create(again)
	Change(r, &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: m.Name}}, func(nc *v1alpha1.NetworkConfiguration) {
		nc.OwnerReferences = kube.Owned(again, v1alpha1.GroupVersion.String(), "Machine")
	})
	return again
}

// testAdoption creates a machine again, which adopts the virtual machine of its former UID. The machine does not restart for the token that it has served.
func testAdoption(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	forEachFault(t, (*Wire).Faults, func(name string, w *Wire) {
		r.CreateMachine(name)
		r.Drive(name, &Wire{}, "runs", IsRunning)
		r.Edit(name, func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
		first := r.Drive(name, &Wire{}, "has restarted", func(m *v1alpha1.Machine) bool {
			return IsRunning(m) && m.Status.RestartToken == "once" && r.Site.Starts(m) == 2
		})
		vms, starts := r.Site.VMs(first), r.Site.Starts(first)
		second := r.Restore(first, string(first.UID))
		m := r.Drive(name, w, "runs with another UID", IsRunning)
		if now := r.Site.VMs(second); !slices.Equal(now, vms) {
			t.Errorf("%s (%s): got virtual machines %v, want %v", name, w.Fault, now, vms)
		}
		if now := r.Site.Starts(second); now != starts {
			t.Errorf("%s (%s): it was started %d times", name, w.Fault, now)
		}
		if !slices.Equal(m.Status.IPAddresses, first.Status.IPAddresses) {
			t.Errorf("%s (%s): it has addresses %v, had %v", name, w.Fault, m.Status.IPAddresses, first.Status.IPAddresses)
		}
		r.DeleteMachine(m, &Wire{})
	})
}

// testOtherClaimant has two machines claim one virtual machine by the same former UID.
func testOtherClaimant(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	r.CreateMachine("m1")
	first := r.Drive("m1", &Wire{}, "runs", IsRunning)
	second := r.Restore(first, string(first.UID))
	r.Drive("m1", &Wire{}, "runs with another UID", IsRunning)
	vms, starts := r.Site.VMs(second), r.Site.Starts(second)
	third := r.Restore(second, string(first.UID))
	r.Drive("m1", &Wire{}, "says "+r.Site.OccupiedReason, HasReason(r.Site.OccupiedReason))
	if err := r.Kube.Delete(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &Wire{}, "is gone", IsGone)
	if now := r.Site.VMs(second); !slices.Equal(now, vms) || r.Site.Starts(second) != starts {
		t.Errorf("the second one adopted %v, started %d times; after the third one it is %v, started %d times", vms, starts, now, r.Site.Starts(second))
	}
}

// testPause pauses a machine, and deletes it: nothing happens.
func testPause(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	r.CreateMachine("m1")
	m := r.Drive("m1", &Wire{}, "runs", IsRunning)
	vms := r.Site.VMs(m)
	r.Edit("m1", func(m *v1alpha1.Machine) {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationPaused, "true")
	})
	if err := r.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w := &Wire{}
	for range 3 {
		if _, err := r.NewHandler(w)(t.Context(), ResyncEvent(r.Namespace, "m1")); err != nil {
			t.Fatal(err)
		}
	}
	if now, writes := r.Site.VMs(m), w.WriteFaults(); !slices.Equal(vms, now) || len(writes) > 0 {
		t.Errorf("got virtual machines %v and writes %v, want %v and none", now, writes, vms)
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { delete(m.Annotations, v1alpha1.AnnotationPaused) })
	r.Drive("m1", &Wire{}, "is gone", IsGone)
}
