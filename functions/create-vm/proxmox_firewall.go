package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// firewallOptions are the options of a virtual machine's firewall that matter here
// (pve-firewall, PVE::Firewall::vm_option_properties). Absent, the MAC filter is on, and
// incoming traffic is dropped.
type firewallOptions struct {
	Enable    int  `json:"enable"`
	MACFilter *int `json:"macfilter"`
}

// filterMACs has Proxmox VE drop what a machine sends from a MAC address that is not its
// own. All other traffic passes: what a platform team has set itself stays.
func (x *proxmox) filterMACs(ctx context.Context, vm *virtualMachine) error {
	var has firewallOptions
	if err := x.client.Get(ctx, vm.path()+"/firewall/options", &has); err != nil {
		return err
	}
	filters := has.MACFilter == nil || *has.MACFilter == 1
	switch {
	case has.Enable == 1 && filters:
		return nil
	case has.Enable == 1:
		return x.client.Put(ctx, vm.path()+"/firewall/options", map[string]any{"macfilter": 1}, nil)
	default:
		return x.client.Put(ctx, vm.path()+"/firewall/options", map[string]any{"enable": 1, "macfilter": 1, "policy_in": "ACCEPT", "policy_out": "ACCEPT"}, nil)
	}
}

// spoofing is what a hypervisor does against machines that send from the MAC addresses of
// others.
type spoofing string

const (
	// spoofingUntold stands for a hypervisor that is not asked.
	spoofingUntold  spoofing = ""
	spoofingStopped spoofing = "Stopped"
	spoofingPassed  spoofing = "Passed"
	// spoofingUnseen is what the user may not know.
	spoofingUnseen spoofing = "Unseen"
)

// spoofing reads whether the firewall of the datacenter works, without which that of no
// machine does.
func (x *proxmox) spoofing(ctx context.Context) (spoofing, error) {
	var options struct {
		Enable int `json:"enable"`
	}
	err := x.client.Get(ctx, "/cluster/firewall/options", &options)
	switch {
	case denied(err):
		return spoofingUnseen, nil
	case err != nil:
		return spoofingUntold, err
	case options.Enable == 0:
		return spoofingPassed, nil
	default:
		return spoofingStopped, nil
	}
}

// describeSpoofing writes whether machines of a provider can pass for others.
func describeSpoofing(p *v1alpha1.MachineProvider, s spoofing) {
	const condition = v1alpha1.ConditionSpoofProtection
	conditions := &p.Status.Conditions
	switch s {
	case spoofingStopped:
		kube.SetCondition(conditions, p.Generation, condition, true, "MACFilter", "machines send from their own MAC addresses only")
	case spoofingPassed:
		kube.SetCondition(conditions, p.Generation, condition, false, "FirewallDisabled",
			"the firewall of the datacenter is off, and with it the MAC filter of every machine, so that a machine can pass for another one on its network: "+
				"allow what reaches the hosts (only SSH and port 8006 from their own network are allowed without a rule), and then run on one of them: pvesh set /cluster/firewall/options --enable 1")
	case spoofingUnseen:
		kube.SetCondition(conditions, p.Generation, condition, false, "FirewallUnknown", "the user may not see whether the firewall of the datacenter is on: grant it Sys.Audit on /")
	case spoofingUntold:
		meta.RemoveStatusCondition(conditions, condition)
	}
}
