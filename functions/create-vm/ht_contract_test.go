package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// runContract checks what every hypervisor MUST do, on its simulator. newEnv returns an Env with
// a site of the hypervisor.
func runContract(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Helper()
	t.Run("MUST make exactly one virtual machine, whatever fails", func(t *testing.T) { onceCreated(t, newEnv) })
	t.Run("MUST leave nothing behind, whatever fails", func(t *testing.T) { cleanlyRemoved(t, newEnv) })
	t.Run("MUST change a machine in place, whatever fails", func(t *testing.T) { changed(t, newEnv) })
	runContractWithoutFaults(t, newEnv)
	t.Run("MUST hold a machine configuration until the node has it, whatever fails", func(t *testing.T) { held(t, newEnv) })
	t.Run("MUST refuse to make a disk smaller", func(t *testing.T) { shrunk(t, newEnv) })
}

// runContractWithoutFaults is the part of runContract in which no request fails.
func runContractWithoutFaults(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Helper()
	t.Run("MUST make exactly one virtual machine for many deliveries at once", func(t *testing.T) { raced(t, newEnv) })
	t.Run("MUST find again what it made when nothing tells", func(t *testing.T) { forgotten(t, newEnv) })
	t.Run("MUST leave alone what is not its own", func(t *testing.T) { foreign(t, newEnv, false) })
	t.Run("MUST leave alone what has taken the place that it claimed", func(t *testing.T) { foreign(t, newEnv, true) })
	t.Run("MUST write nothing about a machine that is settled", func(t *testing.T) { idle(t, newEnv) })
}

// everyHarm runs a life once without harm, to see what it asks for from begin on,
// and then once more for each harm of those that can be done to that.
func everyHarm(t *testing.T, of func(*wire) []harm, life func(name string, w *wire)) {
	t.Helper()
	calm := &wire{}
	life("m0", calm)
	harms := of(calm)
	if len(harms) < 10 {
		t.Fatalf("only %d requests can be harmed: %v", len(harms), harms)
	}
	t.Logf("%d harms", len(harms))
	const atOnce = 8
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, h := range harms {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			life(fmt.Sprintf("m%d", i+1), &wire{harm: h})
		})
	}
	all.Wait()
}

func onceCreated(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Parallel()
	r := newEnv(t)
	everyHarm(t, (*wire).harms, func(name string, w *wire) {
		r.machine(name)
		m := r.drive(name, w, "runs", running)
		r.one(m, w)
		r.clean(m, &wire{})
	})
}

func cleanlyRemoved(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Parallel()
	r := newEnv(t)
	everyHarm(t, (*wire).harms, func(name string, w *wire) {
		r.machine(name)
		r.clean(r.drive(name, &wire{}, "runs", running), w)
	})
}

// changed takes a machine through a new size, a larger disk, a new disk, a stop, a
// start and a restart.
func changed(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Parallel()
	r := newEnv(t)
	everyHarm(t, (*wire).writes, func(name string, w *wire) {
		r.machine(name)
		r.drive(name, &wire{}, "runs", running)
		r.edit(name, func(m *v1alpha1.Machine) {
			m.Spec.Resources = &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: 3}}
			m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "25Gi"}, {Name: "data", Size: "1Gi"}}
			m.Spec.PowerState = v1alpha1.PowerStopped
		})
		r.drive(name, w, "stops", func(m *v1alpha1.Machine) bool {
			return m != nil && m.Status.Phase == v1alpha1.MachineStopped && m.Status.ObservedGeneration == m.Generation
		})
		r.edit(name, func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerRunning })
		m := r.drive(name, w, "runs again", running)
		if cpus, root := r.site.sizes(m); cpus != 3 || root != "25Gi" {
			t.Errorf("%s (%s): got %d CPUs and %s, want 3 and 25Gi", name, w.harm, cpus, root)
		}
		r.one(m, w)
		starts := r.site.starts(m)
		r.edit(name, func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
		r.drive(name, w, "restarts", func(m *v1alpha1.Machine) bool {
			return running(m) && m.Status.RestartToken == "once" && r.site.starts(m) > starts
		})
		if now := r.site.starts(r.drive(name, &wire{}, "stays", running)); now != starts+1 {
			t.Errorf("%s (%s): it was restarted %d times for one token", name, w.harm, now-starts)
		}
	})
}

func raced(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Parallel()
	r := newEnv(t)
	r.machine("m1")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			r.drive("m1", &wire{}, "runs", running)
		})
	}
	all.Wait()
	m := r.drive("m1", &wire{}, "runs", running)
	r.one(m, &wire{})
	if err := r.kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		all.Go(func() { r.drive("m1", &wire{}, "is gone", gone) })
	}
	all.Wait()
	if left := r.site.left(m); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// forgotten is a machine whose status says nothing of what was made: the process
// was killed before it could write that down.
func forgotten(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Parallel()
	r := newEnv(t)
	for _, name := range []string{"m1", "m2"} {
		r.machine(name)
		m := r.drive(name, &wire{}, "runs", running)
		vms := r.site.vms(m)
		before := m.DeepCopy()
		m.Status = v1alpha1.MachineStatus{}
		if _, err := r.kube.PatchStatus(t.Context(), before, m); err != nil {
			t.Fatal(err)
		}
		if name == "m1" {
			m = r.drive(name, &wire{}, "runs", running)
			if now := r.site.vms(m); !slices.Equal(vms, now) {
				t.Errorf("got virtual machines %v, want %v again", now, vms)
			}
		}
		r.clean(m, &wire{})
	}
}

// foreign puts somebody else into the place of a machine: before it is looked at,
// or when it has claimed its place and is about to be made.
func foreign(t *testing.T, newEnv func(*testing.T) *ht, claimed bool) {
	t.Parallel()
	r := newEnv(t)
	m := r.machine("m1")
	if claimed {
		w := &wire{harm: harm{r.site.makes, 1, "before"}}
		m = r.drive("m1", w, "is about to be made", func(*v1alpha1.Machine) bool { return w.count[r.site.makes] > 0 })
	}
	untouched := r.site.foreign(m)
	m = r.drive("m1", &wire{}, "says "+r.site.evicted, ready(r.site.evicted))
	for range 3 {
		_, _ = r.newHandler(&wire{})(t.Context(), look(r.namespace, "m1"))
	}
	if !untouched() {
		t.Error("what belongs to somebody else was changed")
	}
	if err := r.kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.drive("m1", &wire{}, "is gone", gone)
	if !untouched() {
		t.Error("what belongs to somebody else was deleted")
	}
}

func idle(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Parallel()
	r := newEnv(t)
	r.machine("m1")
	m := r.drive("m1", &wire{}, "runs", running)
	w := &wire{}
	handle := r.newHandler(w)
	for range 3 {
		if _, err := handle(t.Context(), look(r.namespace, "m1")); err != nil {
			t.Fatal(err)
		}
	}
	for call := range w.count {
		if !strings.HasPrefix(call, "GET ") {
			t.Errorf("it wrote: %s", call)
		}
	}
	r.clean(m, &wire{})
}

func shrunk(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Parallel()
	r := newEnv(t)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
		Template: "large", ProviderRef: &v1alpha1.ProviderReference{Name: r.site.provider}}}
	r.create(m)
	r.drive("m1", &wire{}, "runs", running)
	r.edit("m1", func(m *v1alpha1.Machine) { m.Spec.Template = "medium" })
	m = r.drive("m1", &wire{}, "says that the disk would shrink", ready("DiskCannotShrink"))
	if m.Status.Phase != v1alpha1.MachineRunning {
		t.Errorf("the machine runs on: got phase %s", m.Status.Phase)
	}
	r.edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "80Gi"}} })
	m = r.drive("m1", &wire{}, "runs with the disk that it has", running)
	if cpus, root := r.site.sizes(m); cpus != 2 || root != "80Gi" {
		t.Errorf("got %d CPUs and %s, want 2 and 80Gi", cpus, root)
	}
	r.clean(m, &wire{})
}

// held takes a node from its first start to a disk that is made anew.
func held(t *testing.T, newEnv func(*testing.T) *ht) {
	t.Parallel()
	r := newEnv(t)
	everyHarm(t, (*wire).writes, func(name string, w *wire) {
		m := aNode(name)
		m.Spec.ProviderRef = &v1alpha1.ProviderReference{Name: r.site.provider}
		r.create(m)
		m = r.drive(name, w, "waits for its configuration", ready("WaitingForMachineConfig"))
		if vms := r.site.vms(m); len(vms) > 0 || len(m.Status.IPAddresses) == 0 {
			t.Errorf("%s (%s): it has virtual machines %v and addresses %v, want none and one", name, w.harm, vms, m.Status.IPAddresses)
		}
		const first, second = "version: v1alpha1 # one\n", "version: v1alpha1 # two\n"
		r.provide(m, first)
		m = r.drive(name, w, "runs with its configuration", func(m *v1alpha1.Machine) bool { return running(m) && m.HoldsMachineConfig() })
		r.one(m, w)
		if got := r.site.found(m); got != first {
			t.Errorf("%s (%s): the node found %q, want %q", name, w.harm, got, first)
		}
		r.installed(m)
		m = r.drive(name, w, "has its configuration taken away", func(m *v1alpha1.Machine) bool {
			return running(m) && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionMachineConfigRemoved)
		})
		if err := r.kube.Get(r.Context(), r.namespace, m.MachineConfigSecret(), &corev1.Secret{}); !kube.NotFound(err) {
			t.Errorf("%s (%s): the Secret is left: %v", name, w.harm, err)
		}
		if r.site.held(m) {
			t.Errorf("%s (%s): the hypervisor still has the keys of a node that runs", name, w.harm)
		}
		starts := r.site.starts(m)
		r.provide(m, second)
		m = r.drive(name, w, "has its configuration again", func(m *v1alpha1.Machine) bool { return running(m) && m.HoldsMachineConfig() })
		if r.site.starts(m) != starts {
			t.Errorf("%s (%s): it was restarted, and nobody asked for that", name, w.harm)
		}
		r.edit(name, func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
		m = r.drive(name, w, "restarts, and finds its configuration", func(m *v1alpha1.Machine) bool {
			return running(m) && m.Status.RestartToken == "once" && r.site.found(m) == second
		})
		r.clean(m, &wire{})
	})
}
