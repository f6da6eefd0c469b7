package main

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

// TestProxmoxMACFilter starts machines whose firewalls filter MAC addresses only. Rules that a user
// has added are kept.
func TestProxmoxMACFilter(t *testing.T) {
	t.Parallel()
	r, sim := newPVE(t, proxmoxsim.Options{}, nil)
	now := func() proxmoxsim.Machine {
		t.Helper()
		machines := sim.Machines()
		if len(machines) != 1 {
			t.Fatalf("there are %d machines", len(machines))
		}
		return machines[0]
	}
	r.CreateMachine("m1")
	r.Drive("m1", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	vm := now()
	want := map[string]string{"enable": "1", "macfilter": "1", "policy_in": "ACCEPT", "policy_out": "ACCEPT"}
	if !maps.Equal(vm.Firewall, want) || !strings.Contains(vm.Config["net0"], ",firewall=1") {
		t.Errorf("firewall %v, net0 %s; want %v and firewall=1", vm.Firewall, vm.Config["net0"], want)
	}
	sim.SetFirewall(vm.ID, map[string]string{"enable": "1", "macfilter": "0", "policy_in": "DROP"})
	r.Edit("m1", func(m *v1alpha1.Machine) { m.Spec.RestartToken = "once" })
	r.Drive("m1", &hypervisortest.Wire{}, "has restarted", func(m *v1alpha1.Machine) bool { return hypervisortest.IsRunning(m) && m.Status.RestartToken == "once" })
	want = map[string]string{"enable": "1", "macfilter": "1", "policy_in": "DROP"}
	if got := now().Firewall; !maps.Equal(got, want) {
		t.Errorf("firewall %v, want %v: a user has set the policy", got, want)
	}
}

// TestProxmoxSpoofProtection checks what the condition says to the platform team so that the filters
// work.
func TestProxmoxSpoofProtection(t *testing.T) {
	t.Parallel()
	audit := append([]proxmoxsim.Grant{{Path: "/", Privileges: []string{"Sys.Audit"}}}, pveGrants...)
	for name, tc := range map[string]struct {
		reason     string
		on         bool
		grants     []proxmoxsim.Grant
		wantReason string
		message    string
	}{
		"On":     {"the filters work", true, audit, "MACFilter", "own MAC addresses"},
		"Off":    {"the firewall of the datacenter is off", false, audit, "FirewallDisabled", "pvesh set /cluster/firewall/options --enable 1"},
		"Unseen": {"the documented role without Sys.Audit on /", true, pveGrants, "FirewallUnknown", "grant it Sys.Audit on /"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := newPVE(t, proxmoxsim.Options{Firewall: tc.on, Users: []proxmoxsim.User{{Name: pveUser, Grants: tc.grants}}}, nil)
			if err := deliver(t.Context(), r.process(&hypervisortest.Wire{}), lookAtProvider(r.Site.Provider, events.TypeResync)); err != nil {
				t.Fatal(err)
			}
			c := meta.FindStatusCondition(r.providerNow().Status.Conditions, v1alpha1.ConditionSpoofProtection)
			if c == nil || c.Reason != tc.wantReason || !strings.Contains(c.Message, tc.message) {
				t.Errorf("%s: %+v, want %s: %s", tc.reason, c, tc.wantReason, tc.message)
			}
		})
	}
}
