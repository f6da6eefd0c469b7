package main

import (
	"context"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// annotationMAC has the MAC address that a Lease keeps for its holder. Such a Lease has
// no label of a network, so that it is not among those of addresses.
const annotationMAC = "vitistack.io/mac-address"

const reasonTwin = "DuplicateMACAddress"

// errTwin says that another allocation of the network has the MAC address.
type errTwin struct{ mac, by string }

func (e errTwin) Error() string {
	return fmt.Sprintf("MAC address %s is the one of IPAllocation %s in the same network: give the interface another, or delete the other one", e.mac, e.by)
}

// claimed returns the MAC address that an allocation has to have to itself before it
// gets an address, or nothing where it has it, as the status of its NetworkConfiguration
// shows. Of the allocations of an interface, the one of the first family has it.
func claimed(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation) string {
	if served := families(nn); len(served) == 0 || familyOf(a, nn) != served[0] {
		return ""
	}
	for _, i := range nc.Spec.NetworkInterfaces {
		if mac := normalMAC(i.MACAddress); i.Name == a.Spec.InterfaceName && mac != shownMAC(nc, i.Name) {
			return mac
		}
	}
	return ""
}

// shownMAC is the MAC address with which the status of a NetworkConfiguration shows an
// interface that has its addresses, or nothing.
func shownMAC(nc *v1alpha1.NetworkConfiguration, name string) string {
	for _, s := range nc.Status.NetworkInterfaces {
		if s.Name == name && s.IPAllocated {
			return normalMAC(s.MACAddress)
		}
	}
	return ""
}

// normalMAC writes a MAC address in the one way that a Lease is named by.
func normalMAC(mac v1alpha1.MACAddress) string {
	return strings.ToLower(strings.ReplaceAll(string(mac), "-", ":"))
}

// dropMAC gives back the MAC address that an interface had before its present one.
func (f *function) dropMAC(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, a *v1alpha2.IPAllocation) error {
	had := shownMAC(nc, a.Spec.InterfaceName)
	if had == "" || claimed(nc, nn, a) == "" || a.Status.Phase != v1alpha2.IPAllocationAllocated {
		return nil
	}
	return f.ledger.releaseMAC(ctx, nn.Name, had, holderOf(a, 0))
}

// takeMAC records that h has a MAC address in a network, and reports whether h has it by
// this call. It is no error if h has it already, or if mac is empty. Of any number of
// holders, all but one get errTwin.
func (l *ledger) takeMAC(ctx context.Context, network, mac string, h holder) (taken bool, err error) {
	if mac == "" {
		return false, nil
	}
	lease := l.leaseOf(macLeaseName(network, mac), h)
	lease.Annotations[annotationMAC] = mac
	err = l.kube.Create(ctx, lease)
	if !kube.AlreadyExists(err) {
		return err == nil, err
	}
	old := &coordinationv1.Lease{}
	if err := l.kube.Get(ctx, h.namespace, lease.Name, old); err != nil {
		return false, err
	}
	if holderUID(old) != h.uid {
		return false, errTwin{mac, old.Annotations[annotationHolder]}
	}
	return false, nil
}

// releaseMAC gives a MAC address back, if h has it.
func (l *ledger) releaseMAC(ctx context.Context, network, mac string, h holder) error {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, h.namespace, macLeaseName(network, mac), lease)
	if kube.NotFound(err) || (err == nil && holderUID(lease) != h.uid) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.kube.DeleteExactly(ctx, lease)
}

// macLeaseName is the one name that a MAC address has in a network.
func macLeaseName(network, mac string) string {
	return kube.Name(network, "mac", strings.ReplaceAll(mac, ":", "-"))
}
