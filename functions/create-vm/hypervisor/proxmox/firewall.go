package proxmox

import (
	"context"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
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
func (x api) filterMACs(ctx context.Context, vm *virtualMachine) error {
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

// inspectSpoofing returns whether machines can use the MAC addresses of others. The firewall of
// a machine works only if that of the datacenter is on.
func (x api) inspectSpoofing(ctx context.Context) (*hypervisor.Finding, error) {
	var options struct {
		Enable int `json:"enable"`
	}
	err := x.client.Get(ctx, "/cluster/firewall/options", &options)
	switch {
	case isForbidden(err):
		return &hypervisor.Finding{Reason: "FirewallUnknown", Message: "the user may not see whether the firewall of the datacenter is on: grant it Sys.Audit on /"}, nil
	case err != nil:
		return nil, err
	case options.Enable == 0:
		return &hypervisor.Finding{Reason: "FirewallDisabled", Message: "the firewall of the datacenter is off, and with it the MAC filter of every machine, so that a machine can spoof the address of another machine on its network: " +
			"allow what reaches the hosts (only SSH and port 8006 from their own network are allowed without a rule), and then run on one of them: pvesh set /cluster/firewall/options --enable 1"}, nil
	default:
		return &hypervisor.Finding{OK: true, Reason: "MACFilter", Message: "machines send from their own MAC addresses only"}, nil
	}
}
