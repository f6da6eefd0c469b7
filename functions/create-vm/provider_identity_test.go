package main

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

const reasonHypervisorChanged = "HypervisorChanged"

// changeProvider changes the MachineProvider of the site.
func (e *env) changeProvider(change func(*v1alpha1.MachineProvider)) {
	e.Helper()
	hypervisortest.Change(e.Env, e.providerNow(), change)
}

// endpoint returns a change of a MachineProvider to an endpoint.
func endpoint(end proxmoxsim.Endpoint) func(*v1alpha1.MachineProvider) {
	return func(p *v1alpha1.MachineProvider) {
		p.Spec.Endpoint.URL, p.Spec.Endpoint.CABundle = end.URL, string(end.CA)
	}
}

// readyOf returns the reason and the message of Ready.
func readyOf(conditions []metav1.Condition) (reason, message string) {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason, c.Message
	}
	return "", ""
}

// TestProxmoxOtherCluster writes the endpoint of another Proxmox VE into a MachineProvider, whose Machines are reconciled before it is
// inspected. Nothing is created or deleted there, and everything continues with the former endpoint.
func TestProxmoxOtherCluster(t *testing.T) {
	t.Parallel()
	r, first := newPVE(t, proxmoxsim.Options{}, nil)
	for _, name := range []string{"m1", "m2"} {
		r.CreateMachine(name)
		r.Drive(name, &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	}
	r.reconcileProvider()
	second, end := r.servePVE(proxmoxsim.Options{})
	former := *r.providerNow().Spec.Endpoint
	r.changeProvider(endpoint(end))
	m1 := r.Drive("m1", &hypervisortest.Wire{}, "is left alone", hypervisortest.HasReason(reasonHypervisorChanged))
	if _, message := readyOf(m1.Status.Conditions); !strings.Contains(message, former.URL+", again") || !strings.Contains(message, "("+end.URL+")") || m1.Status.Phase != v1alpha1.MachineRunning {
		t.Errorf("phase %s, and the message does not name both endpoints: %s", m1.Status.Phase, message)
	}
	if reason, _ := readyOf(r.providerNow().Status.Conditions); reason != reasonHypervisorChanged {
		t.Errorf("the MachineProvider has the reason %s", reason)
	}
	if s := r.reconcileProvider(); s.Phase != v1alpha1.ProviderFailed || len(s.Orphans) > 0 {
		t.Errorf("phase %s, orphans %v after the inspection", s.Phase, s.Orphans)
	}
	r.CreateMachine("m3")
	r.Drive("m3", &hypervisortest.Wire{}, "is not created", hypervisortest.HasReason(reasonHypervisorChanged))
	if err := r.Kube.Delete(t.Context(), m1); err != nil {
		t.Fatal(err)
	}
	w := &hypervisortest.Wire{}
	m1 = r.Drive("m1", w, "is not deleted", hypervisortest.HasReason(reasonHypervisorChanged))
	if n := w.Requests(http.MethodGet, "certificates"); n > 0 {
		t.Errorf("%d requests for the identity of a hypervisor that was inspected", n)
	}
	if len(second.Machines()) > 0 || len(first.Machines()) != 2 || m1.DeletionTimestamp == nil {
		t.Errorf("%d virtual machines in the other cluster, %d in the first one", len(second.Machines()), len(first.Machines()))
	}
	r.changeProvider(func(p *v1alpha1.MachineProvider) { p.Spec.Endpoint = &former })
	r.Drive("m1", &hypervisortest.Wire{}, "is deleted", hypervisortest.IsGone)
	for _, name := range []string{"m2", "m3"} {
		m := r.Drive(name, &hypervisortest.Wire{}, "runs in the first cluster", hypervisortest.IsRunning)
		r.DeleteMachine(m, &hypervisortest.Wire{})
	}
	if s := r.reconcileProvider(); s.Phase != v1alpha1.ProviderReady || s.OtherHypervisor != nil || len(first.Machines()) > 0 {
		t.Errorf("phase %s, other hypervisor %v, %d virtual machines", s.Phase, s.OtherHypervisor, len(first.Machines()))
	}
}

// TestProxmoxInstalledAnew has a Proxmox VE that was lost and reinstalled, and runs the command in the message.
func TestProxmoxInstalledAnew(t *testing.T) {
	t.Parallel()
	r, _ := newPVE(t, proxmoxsim.Options{}, nil)
	r.CreateMachine("m1")
	r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	r.reconcileProvider()
	second, end := r.servePVE(proxmoxsim.Options{})
	r.changeProvider(endpoint(end))
	_, message := readyOf(r.reconcileProvider().Conditions)
	_, command, _ := strings.Cut(message, "run kubectl annotate machineprovider "+r.Site.Provider+" --overwrite ")
	command, _, _ = strings.Cut(command, ": then")
	key, value, ok := strings.Cut(command, "=")
	if !ok || len(second.Machines()) > 0 {
		t.Fatalf("the message has no command: %s", message)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "waits for the command", hypervisortest.HasReason(reasonHypervisorChanged))
	r.changeProvider(func(p *v1alpha1.MachineProvider) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) })
	if s := r.reconcileProvider(); s.Phase != v1alpha1.ProviderReady || s.Hypervisor == nil || s.Hypervisor.ID != value {
		t.Errorf("phase %s, hypervisor %v", s.Phase, s.Hypervisor)
	}
	m := r.Drive("m1", &hypervisortest.Wire{}, "is created again", func(m *v1alpha1.Machine) bool {
		return hypervisortest.IsRunning(m) && len(second.Machines()) == 1
	})
	if err := r.Kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.Drive("m1", &hypervisortest.Wire{}, "is deleted", hypervisortest.IsGone)
	if len(second.Machines()) > 0 {
		t.Error("the virtual machine is not deleted")
	}
}

// TestProxmoxProviderDeletedElsewhere deletes a MachineProvider after its endpoint was changed. Its Machine can be deleted once the
// administrator has accepted the other hypervisor.
func TestProxmoxProviderDeletedElsewhere(t *testing.T) {
	t.Parallel()
	r, _ := newPVE(t, proxmoxsim.Options{}, nil)
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	r.reconcileProvider()
	_, end := r.servePVE(proxmoxsim.Options{})
	r.changeProvider(endpoint(end))
	for _, err := range []error{r.Kube.Delete(t.Context(), r.providerNow()), r.Kube.Delete(t.Context(), m)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r.Drive("m1", &hypervisortest.Wire{}, "is not deleted", hypervisortest.HasReason(reasonHypervisorChanged))
	if reason, _ := readyOf(r.reconcileProvider().Conditions); reason != "InUse" {
		t.Errorf("the MachineProvider has the reason %s", reason)
	}
	other := r.providerNow().Status.OtherHypervisor
	if other == nil {
		t.Fatal("the other hypervisor is not recorded")
	}
	r.changeProvider(func(p *v1alpha1.MachineProvider) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationAcceptHypervisor, other.ID)
	})
	r.Drive("m1", &hypervisortest.Wire{}, "is deleted", hypervisortest.IsGone)
}

// TestProxmoxRenewedAuthority renews the authority of a cluster, which has all virtual machines as before.
func TestProxmoxRenewedAuthority(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, func(p *v1alpha1.MachineProvider) { p.Spec.Shared = true })
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	before := r.reconcileProvider().Hypervisor
	if err := sim.RenewAuthority(); err != nil {
		t.Fatal(err)
	}
	if s := r.reconcileProvider(); s.Phase != v1alpha1.ProviderReady || s.Hypervisor.ID == before.ID || s.OtherHypervisor != nil {
		t.Errorf("phase %s, hypervisor %v, had %v", s.Phase, s.Hypervisor, before)
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxWithoutIdentity has a Proxmox VE that does not tell its certificates.
func TestProxmoxWithoutIdentity(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	if err := plan.Set(faults.Rule{Operation: "GET /nodes/localhost/certificates/info", Error: "501"}); err != nil {
		t.Fatal(err)
	}
	r, _ := newPVE(t, proxmoxsim.Options{Plan: plan}, nil)
	if s := r.reconcileProvider(); s.Phase != v1alpha1.ProviderReady || s.Hypervisor != nil {
		t.Errorf("phase %s, hypervisor %v", s.Phase, s.Hypervisor)
	}
	r.CreateMachine("m1")
	w := &hypervisortest.Wire{}
	r.DeleteMachine(r.Drive("m1", w, "runs", hypervisortest.IsRunning), w)
	if n := w.Requests(http.MethodGet, "certificates"); n > 0 {
		t.Errorf("%d requests for the identity", n)
	}
}

// TestKubeVirtOtherCluster writes the kubeconfig of another cluster into the Secret of a MachineProvider.
func TestKubeVirtOtherCluster(t *testing.T) {
	t.Parallel()
	remote := apiserver.StartAnother(t).Config()
	r := newEnv(t, remoteSite(remote))
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	s := r.reconcileProvider()
	if s.Hypervisor == nil || s.Hypervisor.Endpoint != remote.Host {
		t.Fatalf("hypervisor %v", s.Hypervisor)
	}
	set := func(kubeconfig []byte) {
		secret := &corev1.Secret{}
		if err := r.Kube.Get(t.Context(), r.Namespace, "remote", secret); err != nil {
			t.Fatal(err)
		}
		if err := r.Kube.Merge(t.Context(), secret, map[string]any{"data": map[string][]byte{"kubeconfig": kubeconfig}}); err != nil {
			t.Fatal(err)
		}
	}
	set(kubeconfigFor(t, r.Config))
	r.Drive("m1", &hypervisortest.Wire{}, "is left alone", hypervisortest.HasReason(reasonHypervisorChanged))
	if len(r.Site.VMs(m)) != 1 {
		t.Error("the virtual machine is gone")
	}
	set(kubeconfigFor(t, remote))
	r.DeleteMachine(r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning), &hypervisortest.Wire{})
}

// TestSetHypervisor decides whether an endpoint leads to another hypervisor than the one of the Machines.
func TestSetHypervisor(t *testing.T) {
	t.Parallel()
	machine := func(uid types.UID, phase v1alpha1.MachinePhase, vm string) v1alpha1.Machine {
		return v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{UID: uid, Finalizers: []string{v1alpha1.FinalizerMachine}, Annotations: map[string]string{v1alpha1.AnnotationProvider: "pve"}},
			Status:     v1alpha1.MachineStatus{Phase: phase, VMName: vm},
		}
	}
	runs, stopped, isNew := machine("1", v1alpha1.MachineRunning, "m1"), machine("2", v1alpha1.MachineStopped, "m2"), machine("3", v1alpha1.MachineCreating, "m3")
	pending, deleting, elsewhere, moved := machine("4", v1alpha1.MachinePending, ""), *runs.DeepCopy(), *runs.DeepCopy(), *runs.DeepCopy()
	deleting.DeletionTimestamp = &metav1.Time{}
	elsewhere.Annotations[v1alpha1.AnnotationProvider] = "kubevirt"
	moved.UID, moved.Annotations[v1alpha1.AnnotationFormerUIDs] = "5", "1"
	for name, tc := range map[string]struct {
		reason           string
		recorded, found  string
		accepts          string
		machines         []v1alpha1.Machine
		guests           []string
		hidden           error
		wantID, wantElse string
	}{
		"First":      {reason: "nothing is recorded", found: "a", machines: []v1alpha1.Machine{runs}, wantID: "a"},
		"Same":       {reason: "it is the same", recorded: "a", found: "a", machines: []v1alpha1.Machine{runs}, wantID: "a"},
		"Silent":     {reason: "it does not tell", recorded: "a", machines: []v1alpha1.Machine{runs}, wantID: "a"},
		"NeverTold":  {reason: "it has never told", machines: []v1alpha1.Machine{runs}},
		"Other":      {reason: "a Machine runs on the first one", recorded: "a", found: "b", machines: []v1alpha1.Machine{runs}, wantID: "a", wantElse: "b"},
		"Unused":     {reason: "no Machine has a virtual machine", recorded: "a", found: "b", machines: []v1alpha1.Machine{pending}, wantID: "b"},
		"OtherOwner": {reason: "the Machine is on another MachineProvider", recorded: "a", found: "b", machines: []v1alpha1.Machine{elsewhere}, wantID: "b"},
		"Creating":   {reason: "a virtual machine is being created on the first one", recorded: "a", found: "b", machines: []v1alpha1.Machine{isNew}, wantID: "a", wantElse: "b"},
		"Deleting":   {reason: "the virtual machine would stay on the first one", recorded: "a", found: "b", machines: []v1alpha1.Machine{deleting}, wantID: "a", wantElse: "b"},
		"Accepted":   {reason: "an administrator has accepted it", recorded: "a", found: "b", accepts: "b", machines: []v1alpha1.Machine{runs}, wantID: "b"},
		"Yet":        {reason: "an administrator has accepted another one before", recorded: "b", found: "c", accepts: "b", machines: []v1alpha1.Machine{runs}, wantID: "b", wantElse: "c"},
		"Renewed":    {reason: "it has all virtual machines", recorded: "a", found: "b", machines: []v1alpha1.Machine{runs, stopped, isNew}, guests: []string{"2", "1"}, wantID: "b"},
		"Moved":      {reason: "the mark has a former UID", recorded: "a", found: "b", machines: []v1alpha1.Machine{moved}, guests: []string{"1"}, wantID: "b"},
		"Gone":       {reason: "the other virtual machine is being deleted", recorded: "a", found: "b", machines: []v1alpha1.Machine{deleting, stopped}, guests: []string{"2"}, wantID: "b"},
		"Copy":       {reason: "it has a copy of one virtual machine only", recorded: "a", found: "b", machines: []v1alpha1.Machine{runs, stopped}, guests: []string{"1"}, wantID: "a", wantElse: "b"},
		"Hidden":     {reason: "the virtual machines cannot be listed", recorded: "a", found: "b", machines: []v1alpha1.Machine{runs}, guests: []string{"1"}, hidden: errors.New("no"), wantID: "a", wantElse: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: "pve", Annotations: map[string]string{v1alpha1.AnnotationAcceptHypervisor: tc.accepts}}}
			if tc.recorded != "" {
				p.Status.Hypervisor = &v1alpha1.HypervisorIdentity{ID: tc.recorded}
			}
			i := inspection{identity: &v1alpha1.HypervisorIdentity{ID: tc.found, Endpoint: "there"}, listError: tc.hidden}
			for _, uid := range tc.guests {
				i.guests = append(i.guests, v1alpha1.Orphan{UID: uid})
			}
			setHypervisor(p, i, tc.machines)
			if got, other := idOf(p.Status.Hypervisor), idOf(p.Status.OtherHypervisor); got != tc.wantID || other != tc.wantElse || checkHypervisor(p) == nil != (other == "") {
				t.Errorf("%s: got %q and %q, want %q and %q", tc.reason, got, other, tc.wantID, tc.wantElse)
			}
		})
	}
}

func idOf(i *v1alpha1.HypervisorIdentity) string {
	if i == nil {
		return ""
	}
	return i.ID
}
