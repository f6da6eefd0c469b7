package main

import (
	"errors"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// conditionRedundant tells whether every configured Kea server has the
// reservations. It is there where more than one is configured.
const conditionRedundant = "Redundant"

// Intervals after which something is looked at again that tells nobody when it is
// mended.
const (
	checkOutage  = time.Minute
	checkRefusal = 5 * time.Minute
)

// story is what people are told about a delivery.
type story struct {
	reason, message string
	warning         bool
	// news is whether it has not been told before.
	news bool
}

// setStatus writes into nc's status what became of its wish:
//
//	err                 phase    status        Ready  Redundant
//	nil                 Ready    OK            True   True
//	nil, a server down  Ready    Degraded      True   False, the server's reason
//	PoolExhausted       Pending  its reason    False
//	other refusal       Error    its reason    False
//	outage              Pending  its reason    False
//
// After an outage, interfaces that had their reservations before keep them, and
// the phase stays Ready: machines go on using them.
func setStatus(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, w request, g result, err error, servers int, now time.Time) story {
	var no refusal
	var out Outage
	switch {
	case errors.As(err, &no):
		phase := v1alpha1.NetworkConfigurationError
		if no.reason == reasonExhausted {
			phase = v1alpha1.NetworkConfigurationPending
		}
		scheduleCheck(nc, now, checkRefusal)
		return settle(nc, phase, no.reason, no.reason, no.message)
	case errors.As(err, &out):
		phase := v1alpha1.NetworkConfigurationPending
		if statusMatches(nc, w, nn) {
			phase = v1alpha1.NetworkConfigurationReady
		}
		if out.IsTransient() {
			scheduleCheck(nc, now, checkOutage)
		} else {
			scheduleCheck(nc, now, checkRefusal)
		}
		return settleAs(nc, phase, out.Reason(), metav1.ConditionFalse, out.Reason(), out.Error())
	}
	s := &nc.Status
	s.NetworkNamespaceName, s.NetworkInterfaces = nn.Name, nil
	for i, n := range w.interfaces {
		s.NetworkInterfaces = append(s.NetworkInterfaces, interfaceStatus(nc.Spec.NetworkInterfaces[i], n, w, nn, g.addresses[i]))
	}
	status, told := setRedundant(nc, g, servers, now)
	ready := settle(nc, v1alpha1.NetworkConfigurationReady, status, "NetworkConfigured", "Kea has a reservation for every interface")
	if ready.news || told == nil {
		return ready
	}
	return *told
}

// setRedundant writes whether every server has the reservations, and returns what to
// tell about it if that is news.
func setRedundant(nc *v1alpha1.NetworkConfiguration, g result, servers int, now time.Time) (string, *story) {
	s := &nc.Status
	if len(g.down) == 0 {
		s.NextCheckTime = nil
	}
	if servers < 2 {
		meta.RemoveStatusCondition(&s.Conditions, conditionRedundant)
		return "OK", nil
	}
	if len(g.down) == 0 {
		const message = "every Kea server has the reservations"
		if kube.SetCondition(&s.Conditions, nc.Generation, conditionRedundant, true, "InStep", message) {
			return "OK", &story{reason: "InStep", message: message, news: true}
		}
		return "OK", nil
	}
	scheduleCheck(nc, now, checkOutage)
	if kube.SetCondition(&s.Conditions, nc.Generation, conditionRedundant, false, g.down.Reason(), g.down.Error()) {
		return "Degraded", &story{reason: g.down.Reason(), message: g.down.Error(), warning: true, news: true}
	}
	return "Degraded", nil
}

// interfaceStatus is an interface with its reservation.
func interfaceStatus(spec v1alpha1.InterfaceSpec, n interfaceRequest, w request, nn *v1alpha2.NetworkNamespace, address netip.Addr) v1alpha1.InterfaceStatus {
	return v1alpha1.InterfaceStatus{
		Name: n.name, MACAddress: spec.MACAddress, IPv4Addresses: []string{address.String()}, VLAN: vlanOf(nn),
		IPv4Subnet: w.prefix.String(), IPv4Gateway: w.routers(), DNS: w.dns,
		DHCPReserved: true, IPAllocated: true, AllocationMethod: v1alpha2.AllocationDHCP,
	}
}

// setProblem writes a problem that is in the way of a wish.
func setProblem(nc *v1alpha1.NetworkConfiguration, p problem) story {
	nc.Status.NextCheckTime = nil
	phase := v1alpha1.NetworkConfigurationPending
	if p.mistake {
		phase = v1alpha1.NetworkConfigurationError
	}
	return settle(nc, phase, p.reason, p.reason, p.message)
}

// setDeleting writes what the deletion waits for.
func setDeleting(nc *v1alpha1.NetworkConfiguration, reason, message string) story {
	told := settleAs(nc, v1alpha1.NetworkConfigurationDeleting, reason, metav1.ConditionFalse, reason, message)
	told.warning = true
	return told
}

func settle(nc *v1alpha1.NetworkConfiguration, phase v1alpha1.NetworkConfigurationPhase, status, reason, message string) story {
	ready := metav1.ConditionFalse
	if phase == v1alpha1.NetworkConfigurationReady {
		ready = metav1.ConditionTrue
	}
	told := settleAs(nc, phase, status, ready, reason, message)
	told.warning = phase == v1alpha1.NetworkConfigurationError
	return told
}

func settleAs(nc *v1alpha1.NetworkConfiguration, phase v1alpha1.NetworkConfigurationPhase, status string, ready metav1.ConditionStatus, reason, message string) story {
	s := &nc.Status
	s.Phase, s.Status, s.Message, s.ObservedGeneration = phase, status, message, nc.Generation
	news := kube.SetReady(&s.Conditions, nc.Generation, ready == metav1.ConditionTrue, reason, message)
	return story{reason: reason, message: message, news: news}
}

// scheduleCheck has resync send an event once some time has passed. A time that is
// still to come stays, so that looking again changes nothing.
func scheduleCheck(nc *v1alpha1.NetworkConfiguration, now time.Time, after time.Duration) {
	if next := nc.Status.NextCheckTime; next == nil || !now.Before(next.Time) {
		nc.Status.NextCheckTime = &metav1.Time{Time: now.Add(after).Truncate(time.Second)}
	}
}
