// Package hypervisortest has the contract test of hypervisors: what each of them MUST do, whatever
// request fails and whenever the process ends. Every backend passes it on its simulator.
package hypervisortest

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

// Run checks what every hypervisor MUST do, on its simulator. newEnv returns an Env with
// a site of the hypervisor.
func Run(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Helper()
	t.Run("MUST create exactly one virtual machine, whatever fails", func(t *testing.T) { testCreation(t, newEnv) })
	t.Run("MUST leave nothing behind, whatever fails", func(t *testing.T) { testDeletion(t, newEnv) })
	t.Run("MUST change a machine in place, whatever fails", func(t *testing.T) { testChanges(t, newEnv) })
	t.Run("MUST adopt the virtual machine of a former UID, whatever fails", func(t *testing.T) { testAdoption(t, newEnv) })
	RunWithoutFaults(t, newEnv)
	t.Run("MUST hold a machine configuration until the node has it, whatever fails", func(t *testing.T) { testMachineConfig(t, newEnv) })
	t.Run("MUST refuse to make a disk smaller", func(t *testing.T) { testShrinking(t, newEnv) })
}

// RunWithoutFaults is the part of Run in which no request fails.
func RunWithoutFaults(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Helper()
	t.Run("MUST create exactly one virtual machine for many concurrent deliveries", func(t *testing.T) { testConcurrency(t, newEnv) })
	t.Run("MUST find the virtual machine again after a lost status", func(t *testing.T) { testLostStatus(t, newEnv) })
	t.Run("MUST change a machine whose first configuration is deleted", func(t *testing.T) { testLostSecret(t, newEnv) })
	t.Run("MUST not change the objects of other owners", func(t *testing.T) { testForeignObjects(t, newEnv, false) })
	t.Run("MUST not change an object that has taken the claimed place", func(t *testing.T) { testForeignObjects(t, newEnv, true) })
	t.Run("MUST adopt a virtual machine once", func(t *testing.T) { testOtherClaimant(t, newEnv) })
	t.Run("MUST leave a paused machine as it is", func(t *testing.T) { testPause(t, newEnv) })
	t.Run("MUST write nothing about a machine that is up to date", func(t *testing.T) { testIdle(t, newEnv) })
}

// forEachFault runs a life without a fault, to count its requests, and then once for each possible
// fault that of selects.
func forEachFault(t *testing.T, of func(*Wire) []Fault, life func(name string, w *Wire)) {
	t.Helper()
	calm := &Wire{}
	life("m0", calm)
	faults := of(calm)
	if len(faults) < 10 {
		t.Fatalf("only %d faults are possible: %v", len(faults), faults)
	}
	t.Logf("%d faults", len(faults))
	const atOnce = 8
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, h := range faults {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			life(fmt.Sprintf("m%d", i+1), &Wire{Fault: h})
		})
	}
	all.Wait()
}

// testCreation creates a machine.
func testCreation(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	forEachFault(t, (*Wire).Faults, func(name string, w *Wire) {
		r.CreateMachine(name)
		m := r.Drive(name, w, "runs", IsRunning)
		r.RequireOneVM(m, w)
		r.DeleteMachine(m, &Wire{})
	})
}

// testDeletion deletes a machine.
func testDeletion(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	forEachFault(t, (*Wire).Faults, func(name string, w *Wire) {
		r.CreateMachine(name)
		r.DeleteMachine(r.Drive(name, &Wire{}, "runs", IsRunning), w)
	})
}

// testChanges takes a machine through a new size, a larger disk, a new disk, a stop, a
// start and a restart.
func testChanges(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	forEachFault(t, (*Wire).WriteFaults, func(name string, w *Wire) {
		r.CreateMachine(name)
		r.Drive(name, &Wire{}, "runs", IsRunning)
		r.Edit(name, func(m *v1alpha1.Machine) {
			m.Spec.Resources = &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: 3}}
			m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "25Gi"}, {Name: "data", Size: "1Gi"}}
			m.Spec.PowerState = v1alpha1.PowerStopped
		})
		r.Drive(name, w, "stops", func(m *v1alpha1.Machine) bool {
			return m != nil && m.Status.Phase == v1alpha1.MachineStopped && m.Status.ObservedGeneration == m.Generation
		})
		r.Edit(name, func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerRunning })
		m := r.Drive(name, w, "runs again", IsRunning)
		if cpus, root := r.Site.Sizes(m); cpus != 3 || root != "25Gi" {
			t.Errorf("%s (%s): got %d CPUs and %s, want 3 and 25Gi", name, w.Fault, cpus, root)
		}
		r.RequireOneVM(m, w)
		starts := r.Site.Starts(m)
		r.Edit(name, func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
		r.Drive(name, w, "restarts", func(m *v1alpha1.Machine) bool {
			return IsRunning(m) && m.Status.RestartToken == "once" && r.Site.Starts(m) > starts
		})
		if now := r.Site.Starts(r.Drive(name, &Wire{}, "stays", IsRunning)); now != starts+1 {
			t.Errorf("%s (%s): it was restarted %d times for one token", name, w.Fault, now-starts)
		}
	})
}

// testConcurrency creates and deletes a machine with many deliveries at once.
func testConcurrency(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	r.CreateMachine("m1")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			r.Drive("m1", &Wire{}, "runs", IsRunning)
		})
	}
	all.Wait()
	m := r.Drive("m1", &Wire{}, "runs", IsRunning)
	r.RequireOneVM(m, &Wire{})
	if err := r.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		all.Go(func() { r.Drive("m1", &Wire{}, "is gone", IsGone) })
	}
	all.Wait()
	if left := r.Site.Left(m); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// testLostStatus empties the status of a machine, as if the process had ended before it could write
// what it has created.
func testLostStatus(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	for _, name := range []string{"m1", "m2"} {
		r.CreateMachine(name)
		m := r.Drive(name, &Wire{}, "runs", IsRunning)
		vms := r.Site.VMs(m)
		before := m.DeepCopy()
		m.Status = v1alpha1.MachineStatus{}
		if _, err := r.Kube.PatchStatus(t.Context(), before, m); err != nil {
			t.Fatal(err)
		}
		if name == "m1" {
			m = r.Drive(name, &Wire{}, "runs", IsRunning)
			if now := r.Site.VMs(m); !slices.Equal(vms, now) {
				t.Errorf("got virtual machines %v, want %v again", now, vms)
			}
		}
		r.DeleteMachine(m, &Wire{})
	}
}

// testLostSecret deletes the Secret with the first configuration of a machine. The machine needs it only where its virtual
// machine is lost too.
func testLostSecret(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	secret := func() *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "boot", Labels: map[string]string{v1alpha1.LabelCloudInit: "true"}},
			Data:       map[string][]byte{"userdata": []byte("#cloud-config\npackages: [nginx]\n")},
		}
	}
	first := secret()
	r.Create(first)
	r.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider},
		CloudInit: &v1alpha1.CloudInit{SecretRef: &v1alpha1.CloudInitSecretReference{Name: "boot", Key: "userdata"}},
	}})
	r.Drive("m1", &Wire{}, "runs", IsRunning)
	if err := r.Kube.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.PowerState = v1alpha1.PowerStopped })
	isStopped := func(m *v1alpha1.Machine) bool {
		return m != nil && m.Status.Phase == v1alpha1.MachineStopped && HasReason("Stopped")(m) && m.Status.ObservedGeneration == m.Generation
	}
	m := r.Drive("m1", &Wire{}, "stops", isStopped)
	r.Site.Destroy(m)
	m = r.Drive("m1", &Wire{}, "needs its Secret", HasReason("CloudInitSecretNotFound"))
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); strings.Contains(c.Message, "secretRef") {
		t.Errorf("the API server refuses another Secret, which the message offers: %s", c.Message)
	}
	r.Create(secret())
	m = r.Drive("m1", &Wire{}, "is created again", isStopped)
	r.RequireOneVM(m, &Wire{})
	r.DeleteMachine(m, &Wire{})
}

// testForeignObjects lets another user take the place of a machine: before it is reconciled, or after it has
// claimed its place.
func testForeignObjects(t *testing.T, newEnv func(*testing.T) *Env, claimed bool) {
	t.Parallel()
	r := newEnv(t)
	m := r.CreateMachine("m1")
	if claimed {
		w := &Wire{Fault: Fault{r.Site.CreateRequest, 1, "before"}}
		m = r.Drive("m1", w, "is about to be created", func(*v1alpha1.Machine) bool { return w.Count[r.Site.CreateRequest] > 0 })
	}
	untouched := r.Site.Foreign(m)
	m = r.Drive("m1", &Wire{}, "says "+r.Site.OccupiedReason, HasReason(r.Site.OccupiedReason))
	for range 3 {
		_, _ = r.NewHandler(&Wire{})(t.Context(), ResyncEvent(r.Namespace, "m1"))
	}
	if !untouched() {
		t.Error("what belongs to another user was changed")
	}
	if err := r.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &Wire{}, "is gone", IsGone)
	if !untouched() {
		t.Error("what belongs to another user was deleted")
	}
}

// testIdle reconciles a machine that is up to date.
func testIdle(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	r.CreateMachine("m1")
	m := r.Drive("m1", &Wire{}, "runs", IsRunning)
	w := &Wire{}
	handle := r.NewHandler(w)
	for range 3 {
		if _, err := handle(t.Context(), ResyncEvent(r.Namespace, "m1")); err != nil {
			t.Fatal(err)
		}
	}
	for call := range w.Count {
		if !strings.HasPrefix(call, "GET ") {
			t.Errorf("it wrote: %s", call)
		}
	}
	r.DeleteMachine(m, &Wire{})
}

// testShrinking requests a smaller disk than a machine has.
func testShrinking(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
		Template: "large", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}}}
	r.Create(m)
	r.Drive("m1", &Wire{}, "runs", IsRunning)
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Template = "medium" })
	m = r.Drive("m1", &Wire{}, "reports that the disk would shrink", HasReason("DiskCannotShrink"))
	if m.Status.Phase != v1alpha1.MachineRunning {
		t.Errorf("the machine keeps running: got phase %s", m.Status.Phase)
	}
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.Disks = []v1alpha1.MachineDisk{{Name: "root", Size: "80Gi"}} })
	m = r.Drive("m1", &Wire{}, "runs with its present disk", IsRunning)
	if cpus, root := r.Site.Sizes(m); cpus != 2 || root != "80Gi" {
		t.Errorf("got %d CPUs and %s, want 2 and 80Gi", cpus, root)
	}
	r.DeleteMachine(m, &Wire{})
}

// testMachineConfig takes a node from its first start to a disk that is created again.
func testMachineConfig(t *testing.T, newEnv func(*testing.T) *Env) {
	t.Parallel()
	r := newEnv(t)
	forEachFault(t, (*Wire).WriteFaults, func(name string, w *Wire) {
		m := NewNode(name)
		m.Spec.ProviderRef = &v1alpha1.ProviderReference{Name: r.Site.Provider}
		r.Create(m)
		m = r.Drive(name, w, "waiting for its configuration", HasReason("WaitingForMachineConfig"))
		if vms := r.Site.VMs(m); len(vms) > 0 || len(m.Status.IPAddresses) == 0 {
			t.Errorf("%s (%s): it has virtual machines %v and addresses %v, want none and one", name, w.Fault, vms, m.Status.IPAddresses)
		}
		const first, second, third = "version: v1alpha1 # one\n", "version: v1alpha1 # two\n", "version: v1alpha1 # three\n"
		r.ProvideMachineConfig(m, first)
		m = r.Drive(name, w, "runs with its configuration", func(m *v1alpha1.Machine) bool { return IsRunning(m) && m.HoldsMachineConfig() })
		r.RequireOneVM(m, w)
		if got := r.Site.FoundUserData(m); got != first {
			t.Errorf("%s (%s): the node found %q, want %q", name, w.Fault, got, first)
		}
		r.MarkInstalled(m)
		m = r.Drive(name, w, "is running, and its configuration is removed from the hypervisor", func(m *v1alpha1.Machine) bool {
			return IsRunning(m) && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionMachineConfigRemoved)
		})
		if err := r.Kube.Get(r.Context(), r.Namespace, m.MachineConfigSecret(), &corev1.Secret{}); !kube.NotFound(err) {
			t.Errorf("%s (%s): the Secret is left: %v", name, w.Fault, err)
		}
		if r.Site.HoldsUserData(m) {
			t.Errorf("%s (%s): the hypervisor still has the keys of a running node", name, w.Fault)
		}
		starts := r.Site.Starts(m)
		r.ProvideMachineConfig(m, second)
		m = r.Drive(name, w, "has its configuration again", func(m *v1alpha1.Machine) bool { return IsRunning(m) && m.HoldsMachineConfig() })
		if r.Site.Starts(m) != starts {
			t.Errorf("%s (%s): it was restarted without a new token", name, w.Fault)
		}
		r.ProvideMachineConfig(m, third)
		r.Drive(name, w, "has another configuration", func(m *v1alpha1.Machine) bool { return IsRunning(m) && m.HoldsMachineConfig() })
		r.Edit(name, func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
		m = r.Drive(name, w, "restarts, and finds its configuration", func(m *v1alpha1.Machine) bool {
			return IsRunning(m) && m.Status.RestartToken == "once" && r.Site.FoundUserData(m) == third
		})
		r.DeleteMachine(m, &Wire{})
	})
}
