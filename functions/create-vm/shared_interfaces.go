package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// sharedNames returns the names that a machine's interface may have in a shared
// NetworkConfiguration: plain is the machine's name, a dash and the interface's; apart also
// has a hash of both, for an interface whose plain name another machine has, as eth0 of web-db
// and db-eth0 of web. Names of Machines there have no dots.
func sharedNames(machine, iface string) (plain, apart string) {
	const longest = 80
	plain = kube.Name(strings.ReplaceAll(machine, ".", "-"), iface)
	sum := sha256.Sum256([]byte(machine + "/" + iface))
	hash := fmt.Sprintf("-%x", sum[:4])
	return plain, plain[:min(len(plain), longest-len(hash))] + hash
}

// claimInterface writes the MAC address of a machine's interface into a NetworkConfiguration,
// and returns its name there: the interface's own unless it has another MAC address, and a
// shared name otherwise. It takes over the interface of a deleted machine of the same name,
// but never that of another machine.
func (r networkReconciler) claimInterface(ctx context.Context, m *v1alpha1.Machine, n v1alpha1.MachineNetwork, nc *v1alpha1.NetworkConfiguration) (string, error) {
	mac := interfaceMAC(m, n)
	plain, apart := sharedNames(m.Name, n.Name)
	for _, name := range []string{plain, apart, n.Name} {
		if macIn(nc, name) == mac {
			return name, r.checkMACUnused(ctx, m, n, nc)
		}
	}
	shared := plain
	if has := macIn(nc, plain); has != "" {
		users, err := r.machinesWithMAC(ctx, m, nc.Name, has)
		if err != nil {
			return "", err
		}
		if len(users) > 0 {
			shared = apart
		}
	}
	for _, name := range []string{shared, n.Name} {
		i := interfaceIn(nc, name)
		if i >= 0 && (name == shared || nc.Spec.NetworkInterfaces[i].MACAddress == "") {
			nc.Spec.NetworkInterfaces[i].MACAddress = v1alpha1.MACAddress(mac)
			return name, nil
		}
	}
	nc.Spec.NetworkInterfaces = append(nc.Spec.NetworkInterfaces, v1alpha1.InterfaceSpec{Name: shared, MACAddress: v1alpha1.MACAddress(mac)})
	return shared, nil
}

// checkMACUnused returns a UserError if a machine, which does not use a NetworkConfiguration yet, has the MAC address of another one that does: they would share one
// interface there, and so one address. The finalizer of the first one decides, because a write of the second one at the same time is a conflict.
func (r networkReconciler) checkMACUnused(ctx context.Context, m *v1alpha1.Machine, n v1alpha1.MachineNetwork, nc *v1alpha1.NetworkConfiguration) error {
	others := network.Users(nc)
	if m.Status.VMName != "" || len(others) == 0 || slices.Contains(others, m.Name) {
		return nil
	}
	mac := interfaceMAC(m, n)
	same, err := r.machinesWithMAC(ctx, m, nc.Name, mac)
	if err != nil {
		return err
	}
	for _, other := range same {
		if slices.Contains(others, other) {
			return networkError{reconcile.UserError{Reason: "NetworkFailed", Message: fmt.Sprintf(
				"interface %s has MAC address %s, which Machine %s uses in NetworkConfiguration %s: delete this Machine and create it again without macAddress in spec.networks, or with another one",
				n.Name, mac, other, nc.Name)}, nc.Name}
		}
	}
	return nil
}

// machinesWithMAC returns the names of the other machines that have a MAC address in a NetworkConfiguration.
func (r networkReconciler) machinesWithMAC(ctx context.Context, m *v1alpha1.Machine, configuration, mac string) (names []string, err error) {
	list := &v1alpha1.MachineList{}
	if err := r.kube.List(ctx, m.Namespace, "", list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		other := &list.Items[i]
		has := slices.ContainsFunc(machineNetworks(other), func(n v1alpha1.MachineNetwork) bool {
			return n.NetworkName == configuration && interfaceMAC(other, n) == mac
		})
		if has && other.Name != m.Name {
			names = append(names, other.Name)
		}
	}
	return names, nil
}

// interfaceIn returns the index of an interface in the spec of a NetworkConfiguration, or -1.
func interfaceIn(nc *v1alpha1.NetworkConfiguration, name string) int {
	return slices.IndexFunc(nc.Spec.NetworkInterfaces, func(s v1alpha1.InterfaceSpec) bool { return s.Name == name })
}

// macIn returns the MAC address of an interface of a NetworkConfiguration, or nothing.
func macIn(nc *v1alpha1.NetworkConfiguration, name string) string {
	i := interfaceIn(nc, name)
	if i < 0 || nc.Spec.NetworkInterfaces[i].MACAddress == "" {
		return ""
	}
	return nc.Spec.NetworkInterfaces[i].MACAddress.Normalized()
}

// releaseInterfaces removes the interfaces of a machine from a NetworkConfiguration, including
// interfaces that its spec no longer names, and reports whether there were any. An interface without the machine's name stays that of
// another machine with the same MAC address unless the machine is a user.
func releaseInterfaces(nc *v1alpha1.NetworkConfiguration, m *v1alpha1.Machine) (claimed bool) {
	isUser := slices.Contains(network.Users(nc), m.Name)
	var kept []v1alpha1.InterfaceSpec
	for _, s := range nc.Spec.NetworkInterfaces {
		of, shared := isInterfaceOf(m, s)
		claimed = claimed || of
		if of && shared {
			continue
		}
		if of && isUser {
			s.MACAddress = ""
		}
		kept = append(kept, s)
	}
	nc.Spec.NetworkInterfaces = kept
	return claimed
}

// isInterfaceOf reports whether an interface of a NetworkConfiguration belongs to a machine,
// and whether it has a shared name. A MAC address that derives from the machine proves it
// under any name.
func isInterfaceOf(m *v1alpha1.Machine, s v1alpha1.InterfaceSpec) (of, shared bool) {
	own := strings.TrimPrefix(s.Name, strings.ReplaceAll(m.Name, ".", "-")+"-")
	named := slices.Clone(machineNetworks(m))
	for _, name := range []string{s.Name, own, own[:max(0, strings.LastIndex(own, "-"))]} {
		named = append(named, v1alpha1.MachineNetwork{Name: name})
	}
	for _, n := range named {
		plain, apart := sharedNames(m.Name, n.Name)
		if s.MACAddress != "" && s.MACAddress.Normalized() == interfaceMAC(m, n) && slices.Contains([]string{plain, apart, n.Name}, s.Name) {
			return true, s.Name != n.Name
		}
	}
	return false, false
}
