package main

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/tests/sim/faults"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// without returns the documented grants except for one privilege.
func without(privilege string) []proxmoxsim.Grant {
	var grants []proxmoxsim.Grant
	for _, g := range pveGrants {
		g.Privileges = slices.DeleteFunc(slices.Clone(g.Privileges), func(p string) bool { return p == privilege })
		grants = append(grants, g)
	}
	return grants
}

// TestProxmoxPrivileges expects the missing privileges of a token in the condition of its
// MachineProvider.
func TestProxmoxPrivileges(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	cases := []struct{ reason, lacks, want string }{
		{"the documented role is sufficient", "", ""},
		{"a CD could not be deleted", "Datastore.Allocate", "Datastore.Allocate on /storage/local"},
		{"no image could be downloaded", "Sys.AccessNetwork", "Sys.AccessNetwork on /nodes/pve1"},
		{"no disk could be created", "Datastore.AllocateSpace", "Datastore.AllocateSpace on /storage/"},
		{"the addresses of guests are unknown", "VM.GuestAgent.Audit", "VM.GuestAgent.Audit on /vms"},
		{"no bridge could be used", "SDN.Use", "SDN.Use on /sdn/zones/localnetwork"},
		{"the role is complete again", "", ""},
	}
	for _, tc := range cases {
		sim.SetUser(proxmoxsim.User{Name: pveUser, Grants: without(tc.lacks)})
		if err := deliver(t.Context(), r.process(&hypervisortest.Wire{}), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
			t.Fatal(err)
		}
		status := r.providerNow().Status
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionPrivilegesGranted)
		if c == nil || (c.Status == "True") != (tc.want == "") || !strings.Contains(c.Message, tc.want) {
			t.Errorf("%s: want %q, got %+v", tc.reason, tc.want, c)
		}
		if status.Phase != v1alpha1.ProviderReady {
			t.Errorf("%s: phase %s", tc.reason, status.Phase)
		}
	}
}

// TestProxmoxPrivilegesPropagate expects the privileges that a user has on a path, but not below it.
func TestProxmoxPrivilegesPropagate(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	for path, want := range map[string]string{"/vms": "VM.Audit on /vms with Propagate", "/sdn/zones/localnetwork": "SDN.Use on /sdn/zones/localnetwork with Propagate"} {
		grants := slices.Clone(pveGrants)
		for i := range grants {
			grants[i].OnlyHere = grants[i].Path == path
		}
		sim.SetUser(proxmoxsim.User{Name: pveUser, Grants: grants})
		if err := deliver(t.Context(), r.process(&hypervisortest.Wire{}), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(r.providerNow().Status.Conditions, v1alpha1.ConditionPrivilegesGranted)
		if c == nil || c.Status == "True" || !strings.Contains(c.Message, want) {
			t.Errorf("a grant on %s that does not propagate: want %q, got %+v", path, want, c)
		}
	}
}

// TestProxmoxPrivilegesOnPool expects the privileges on the pool of a provider, of which the user has none on /vms.
func TestProxmoxPrivilegesOnPool(t *testing.T) {
	t.Parallel()
	for lacks, want := range map[string]string{"": "", "VM.Config.Options": "VM.Config.Options on /pool/tenants"} {
		grants := without(lacks)
		grants[0].Path = "/pool/tenants"
		r, _ := newPVE(t, proxmoxsim.Options{Pools: []string{"tenants"}, Users: []proxmoxsim.User{{Name: pveUser, Grants: grants}}}, func(p *v1alpha1.MachineProvider) {
			p.Spec.Proxmox = &v1alpha1.ProxmoxOptions{Pool: "tenants"}
		})
		if err := deliver(t.Context(), r.process(&hypervisortest.Wire{}), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(r.providerNow().Status.Conditions, v1alpha1.ConditionPrivilegesGranted)
		if c == nil || (c.Status == "True") != (want == "") || !strings.Contains(c.Message, want) {
			t.Errorf("without %q: want %q, got %+v", lacks, want, c)
		}
	}
}

// TestProxmoxVersions connects to releases of Proxmox VE with different privileges.
func TestProxmoxVersions(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, version, instead, ready string }{
		"8":   {reason: "the guest agent requires VM.Monitor in Proxmox VE 8", version: "8.4.14", instead: "VM.Monitor", ready: "Healthy"},
		"9":   {reason: "VM.GuestAgent.Audit replaces it in Proxmox VE 9", version: "9.0.3", instead: "VM.GuestAgent.Audit", ready: "Healthy"},
		"8.3": {reason: "it imports no disk image from a URL", version: "8.3.5", instead: "VM.Monitor", ready: "VersionNotSupported"},
		"7":   {reason: "Proxmox VE 7 lacks required features", version: "7.4-3", instead: "VM.Monitor", ready: "VersionNotSupported"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			grants := without("VM.GuestAgent.Audit")
			grants[0].Privileges = append(grants[0].Privileges, tc.instead)
			r, _ := newPVE(t, proxmoxsim.Options{Version: tc.version, Users: []proxmoxsim.User{{Name: pveUser, Grants: grants}}}, nil)
			if err := deliver(t.Context(), r.process(&hypervisortest.Wire{}), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
				t.Fatal(err)
			}
			conditions := r.providerNow().Status.Conditions
			if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); c.Reason != tc.ready {
				t.Errorf("%s: Ready is %s: %s", tc.reason, c.Reason, c.Message)
			}
			if tc.ready == "Healthy" && !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionPrivilegesGranted) {
				t.Errorf("%s: %+v", tc.reason, conditions)
			}
		})
	}
}

// TestProxmoxCDPrivilege creates no CD that it could not delete, reports which privilege to grant, and
// deletes the CD with the documented role.
func TestProxmoxCDPrivilege(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{Users: []proxmoxsim.User{{Name: pveUser, Grants: without("Datastore.Allocate")}}}, nil)
	r.CreateMachine("m1")
	m := r.Drive("m1", &hypervisortest.Wire{}, "reports which privilege it needs", hypervisortest.HasReason("PermissionDenied"))
	if message := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady).Message; !strings.Contains(message, "Datastore.Allocate on /storage/local") {
		t.Errorf("the privilege and its path are missing: %s", message)
	}
	if left := r.Site.Left(m); len(left) > 0 {
		t.Errorf("nothing may be created: %v", left)
	}
	sim.SetUser(proxmoxsim.User{Name: pveUser, Grants: pveGrants})
	m = r.Drive("m1", &hypervisortest.Wire{}, "runs with the documented role", hypervisortest.IsRunning)
	if !slices.ContainsFunc(sim.Volumes(), func(v string) bool { return strings.Contains(v, "local:iso/"+cdFile(m)) }) {
		t.Errorf("no CD: %v", sim.Volumes())
	}
	r.DeleteMachine(m, &hypervisortest.Wire{})
}

// TestProxmoxLostCreationInPool loses the answer to a creation. The token has rights on a pool only, which the virtual machine joins at the end of
// its creation.
func TestProxmoxLostCreationInPool(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, image, operation, task string }{
		"create": {"the task has the VMID", "", "POST /nodes/*/qemu", "task/qmcreate"},
		"clone":  {"the task has the VMID of the template", "debian-13", "POST /nodes/*/qemu/*/clone", "task/qmclone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inPool := slices.Clone(pveGrants)
			inPool[0].Path = "/pool/tenants"
			inPool = append(inPool, proxmoxsim.Grant{Path: "/vms/9000", Privileges: []string{"VM.Audit", "VM.Clone"}})
			plan := &faults.Plan{}
			r, sim := newPVE(t, proxmoxsim.Options{
				Plan: plan, Pools: []string{"tenants"}, Users: []proxmoxsim.User{{Name: pveUser, Grants: inPool}},
			}, func(p *v1alpha1.MachineProvider) {
				p.Spec.Proxmox = &v1alpha1.ProxmoxOptions{VMIDStart: 500, VMIDEnd: 510, Pool: "tenants"}
			})
			if err := sim.AddMachine(proxmoxsim.Machine{ID: 9000, Node: "pve2", Config: map[string]string{"name": "debian-13", "template": "1", "scsi0": "local-lvm:4", "boot": "order=scsi0"}}, "https://x/debian.qcow2"); err != nil {
				t.Fatal(err)
			}
			if err := plan.Set(faults.Rule{Operation: tc.operation, Error: "reset", After: true, Times: 1}, faults.Rule{Operation: tc.task, Latency: "5s", Times: 1}); err != nil {
				t.Fatal(err)
			}
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
				Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: r.Site.Provider}, OS: &v1alpha1.MachineOS{ImageID: tc.image},
			}}
			r.Create(m)
			claimed := preferredVMID(m, 500, 510)
			m = r.Drive("m1", &hypervisortest.Wire{}, "runs: "+tc.reason, hypervisortest.IsRunning)
			if vmid := vmidOf(m); vmid != claimed {
				t.Errorf("it has VMID %d, and had claimed %d", vmid, claimed)
			}
			for _, vm := range sim.Machines() {
				if vm.ID != claimed && vm.ID != 9000 {
					t.Errorf("VM %d exists too: %v", vm.ID, vm.Config)
				}
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
		})
	}
}
