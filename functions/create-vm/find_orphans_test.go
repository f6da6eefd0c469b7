package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestWithoutMachine(t *testing.T) {
	t.Parallel()
	machines := []v1alpha1.Machine{
		{ObjectMeta: metav1.ObjectMeta{Name: "runs", UID: "1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "going", UID: "2", DeletionTimestamp: &metav1.Time{Time: time.Now()}}},
	}
	gone := v1alpha1.Orphan{ID: "3", UID: "3"}
	got := findOrphans([]v1alpha1.Orphan{{ID: "1", UID: "1"}, {ID: "2", UID: "2"}, gone}, machines)
	if diff := cmp.Diff([]v1alpha1.Orphan{gone}, got); diff != "" {
		t.Errorf("a Machine that is being deleted exists (-want +got):\n%s", diff)
	}
}

// TestOrphans leaves orphaned virtual machines at each hypervisor.
func TestOrphans(t *testing.T) {
	t.Parallel()
	remote := apiserver.StartAnother(t).Config()
	t.Run("KubeVirt", func(t *testing.T) { orphaned(t, remoteSite(remote), "kubectl --namespace ") })
	t.Run("Proxmox", func(t *testing.T) { orphaned(t, proxmoxSite, "qm stop ") })
}

func orphaned(t *testing.T, at func(*env) *hypervisortest.Site, remedy string) {
	t.Parallel()
	r := newEnv(t, at)
	r.CreateMachine("stays")
	r.CreateMachine("m1")
	stays, m := r.Drive("stays", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning), r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	same := r.Site.Foreign(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "foreign", UID: "foreign"}})
	if s := r.reconcileProvider(); len(s.Orphans) != 0 || !meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionOrphansFound) {
		t.Fatalf("every virtual machine of the stack has its Machine: %+v", s)
	}
	r.orphan(m)
	if s := r.reconcileProvider(); len(s.Orphans) != 1 || s.OrphanCount != 0 || !meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionOrphansFound) {
		t.Fatalf("one check confirms no orphan: %+v", s)
	}
	r.Clock.Advance(10 * time.Minute)
	s := r.reconcileProvider()
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOrphansFound)
	if s.OrphanCount != 1 || len(s.Orphans) != 1 || s.Orphans[0].UID != string(m.UID) || !s.Orphans[0].Confirmed {
		t.Fatalf("got %+v", s.Orphans)
	}
	if c == nil || c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, s.Orphans[0].ID) || !strings.Contains(c.Message, remedy) {
		t.Errorf("the condition has to name the orphan, and the command that removes it: %+v", c)
	}
	if !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("machines are created as before: %+v", s.Conditions)
	}
	before := r.providerNow().ResourceVersion
	r.Clock.Advance(10 * time.Minute)
	if r.reconcileProvider(); r.providerNow().ResourceVersion != before {
		t.Error("a check with an unchanged result has written")
	}
	if len(r.Site.VMs(m)) != 1 || len(r.Site.VMs(stays)) != 1 || !same() {
		t.Error("the checks have changed virtual machines")
	}
	r.removeByHand(m)
	if s := r.reconcileProvider(); len(s.Orphans) != 0 || s.OrphanCount != 0 || !meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionOrphansFound) {
		t.Errorf("the orphan is removed, but reported: %+v", s)
	}
	r.DeleteMachine(stays, &hypervisortest.Wire{})
}

// reconcileProvider reconciles the MachineProvider as resync requests it, and returns its status.
func (e *env) reconcileProvider() v1alpha1.MachineProviderStatus {
	e.Helper()
	if err := deliver(e.Context(), e.process(&hypervisortest.Wire{}), lookAtProvider(e.Site.Provider, events.TypeResync)); err != nil {
		e.Fatal(err)
	}
	return e.providerNow().Status
}

// orphan deletes a Machine after its finalizers were removed by hand.
func (e *env) orphan(m *v1alpha1.Machine) {
	e.Helper()
	if err := e.Kube.Merge(e.Context(), m.DeepCopy(), map[string]any{"metadata": map[string]any{"finalizers": nil}}); err != nil {
		e.Fatal(err)
	}
	if err := e.Kube.Delete(e.Context(), m); err != nil {
		e.Fatal(err)
	}
}

// removeByHand removes the virtual machine of a deleted Machine.
func (e *env) removeByHand(m *v1alpha1.Machine) {
	e.Helper()
	backend, err := e.process(&hypervisortest.Wire{}).providers.connect(e.Context(), e.providerNow())
	if err != nil {
		e.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		waitsFor, err := backend.Remove(e.Context(), m)
		if err == nil && waitsFor == "" {
			return
		}
		if time.Since(began) > time.Minute {
			e.Fatalf("the virtual machine is not removed: %s, %v", waitsFor, err)
		}
	}
}

// TestNewMachineIsNoOrphan creates a Machine with its virtual machine just before a check lists
// virtual machines.
func TestNewMachineIsNoOrphan(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	var once sync.Once
	w := &hypervisortest.Wire{Answer: func(req *http.Request) *http.Response {
		if strings.HasSuffix(req.URL.Path, "/cluster/resources") {
			once.Do(func() {
				m := r.CreateMachine("new")
				if err := sim.AddMachine(proxmoxsim.Machine{ID: 20000, Node: "pve1", Config: map[string]string{"name": "new", "tags": "vitistack;uid-" + string(m.UID)}}, ""); err != nil {
					t.Error(err)
				}
			})
		}
		return nil
	}}
	if err := deliver(t.Context(), r.process(w), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
		t.Fatal(err)
	}
	if s := r.providerNow().Status; len(s.Orphans) != 0 {
		t.Errorf("its Machine exists: %+v", s.Orphans)
	}
	if err := sim.AddMachine(proxmoxsim.Machine{ID: 20001, Node: "pve1", Config: map[string]string{"name": "old", "tags": "vitistack;uid-gone"}}, ""); err != nil {
		t.Fatal(err)
	}
	if s := r.reconcileProvider(); len(s.Orphans) != 1 || s.Orphans[0].ID != "20001" {
		t.Errorf("only the virtual machine without a Machine is an orphan: %+v", s.Orphans)
	}
	p := r.providerNow()
	if err := r.Kube.Merge(t.Context(), p, map[string]any{"spec": map[string]any{"shared": true}}); err != nil {
		t.Fatal(err)
	}
	if s := r.reconcileProvider(); len(s.Orphans) != 0 || meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOrphansFound) != nil {
		t.Errorf("a shared hypervisor does not say which installation created a virtual machine: %+v", s)
	}
}

// TestOrphansAreNotListed has a user of KubeVirt without the right to list virtual machines.
func TestOrphansAreNotListed(t *testing.T) {
	t.Parallel()
	r := newEnv(t, remoteSite(apiserver.StartAnother(t).Config()))
	known := v1alpha1.Orphan{ID: "a/b", UID: "1", FirstSeen: metav1.NewTime(time.Now().Truncate(time.Second)), Confirmed: true}
	p := r.providerNow()
	before := p.DeepCopy()
	p.Status.Orphans, p.Status.OrphanCount = []v1alpha1.Orphan{known}, 1
	if _, err := r.Kube.PatchStatus(t.Context(), before, p); err != nil {
		t.Fatal(err)
	}
	w := &hypervisortest.Wire{Answer: func(req *http.Request) *http.Response {
		if strings.HasSuffix(req.URL.Path, "/virtualmachines") {
			return &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody, Request: req}
		}
		return nil
	}}
	if err := deliver(t.Context(), r.process(w), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
		t.Fatal(err)
	}
	s := r.providerNow().Status
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionOrphansFound)
	if c == nil || c.Status != metav1.ConditionUnknown || !strings.Contains(c.Message, "grant it list on virtualmachines.kubevirt.io") {
		t.Errorf("got %+v", c)
	}
	if len(s.Orphans) != 1 || s.Phase != v1alpha1.ProviderReady {
		t.Errorf("the known orphans stay, and machines are created as before: %+v", s)
	}
}
