package main

import (
	"errors"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// conditionRedundant is True if every configured Kea server has the reservations. Only
// installations with more than one server have the condition.
const conditionRedundant = "Redundant"

// Intervals after which resync sends an event for a NetworkConfiguration whose problem may
// end without any event.
const (
	outageCheckInterval    = time.Minute
	userErrorCheckInterval = 5 * time.Minute
)

// attempt is the result of reserving addresses on all Kea servers.
type attempt struct {
	result
	err error
	// servers is how many Kea servers are configured.
	servers int
}

// setStatus writes the result of reserving addresses into the status of nc:
//
//	err                  phase    status        Ready  Redundant
//	nil                  Ready    OK            True   True
//	nil, a server down   Ready    Degraded      True   False, the server's reason
//	PoolExhausted        Pending  its reason    False
//	any other UserError  Error    its reason    False
//	Outage               Pending  its reason    False
//
// During an Outage, a NetworkConfiguration whose interfaces have reservations already keeps
// them in its status, and its phase stays Ready, because machines are using the addresses.
func setStatus(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, r request, a attempt, now time.Time) reconcile.Outcome {
	var outage kea.Outage
	userError, isUserError := reconcile.AsUserError(a.err)
	switch {
	case isUserError:
		phase := v1alpha1.NetworkConfigurationError
		if userError.Reason == reasonExhausted {
			phase = v1alpha1.NetworkConfigurationPending
		}
		scheduleCheck(nc, now, userErrorCheckInterval)
		return setPhase(nc, phase, userError.Reason, userError.Reason, userError.Message)
	case errors.As(a.err, &outage):
		phase := v1alpha1.NetworkConfigurationPending
		if statusMatches(nc, r, nn) {
			phase = v1alpha1.NetworkConfigurationReady
		}
		if outage.Retried() {
			scheduleCheck(nc, now, outageCheckInterval)
		} else {
			scheduleCheck(nc, now, userErrorCheckInterval)
		}
		return setNotReady(nc, phase, outage.Reason(), outage.Error())
	}
	var interfaces []v1alpha1.InterfaceStatus
	for i, wanted := range r.interfaces {
		interfaces = append(interfaces, interfaceStatus(nc.Spec.NetworkInterfaces[i], wanted, r, nn, a.addresses[i]))
	}
	nc.Status.NetworkNamespaceName = nn.Name
	nc.Status.SetInterfaces(interfaces)
	status, redundancy := setRedundant(nc, a.result, a.servers, now)
	ready := setPhase(nc, v1alpha1.NetworkConfigurationReady, status, "NetworkConfigured", "Kea has a reservation for every interface")
	if ready.Changed || !redundancy.Changed {
		return ready
	}
	return redundancy
}

// interfaceStatus returns the status of an interface whose reservation has address.
func interfaceStatus(spec v1alpha1.InterfaceSpec, wanted interfaceRequest, r request, nn *v1alpha2.NetworkNamespace, address netip.Addr) v1alpha1.InterfaceStatus {
	return v1alpha1.InterfaceStatus{
		Name: wanted.name, MACAddress: spec.MACAddress, IPv4Addresses: []string{address.String()}, VLAN: vlanOf(nn),
		IPv4Subnet: r.prefix.String(), IPv4Gateway: r.routers(), DNS: r.dns,
		DHCPReserved: true, IPAllocated: true, AllocationMethod: v1alpha2.AllocationDHCP,
	}
}

// setProblem writes why nothing can be reserved yet: phase Error for a UserError, and
// Pending for a WaitError, whose end causes an event.
func setProblem(nc *v1alpha1.NetworkConfiguration, problem error) reconcile.Outcome {
	nc.Status.NextCheckTime = nil
	if userError, ok := reconcile.AsUserError(problem); ok {
		return setPhase(nc, v1alpha1.NetworkConfigurationError, userError.Reason, userError.Reason, userError.Message)
	}
	var wait reconcile.WaitError
	errors.As(problem, &wait)
	return setPhase(nc, v1alpha1.NetworkConfigurationPending, wait.Reason, wait.Reason, wait.Message)
}

// setDeleting writes what the deletion waits for.
func setDeleting(nc *v1alpha1.NetworkConfiguration, reason, message string) reconcile.Outcome {
	outcome := setNotReady(nc, v1alpha1.NetworkConfigurationDeleting, reason, message)
	outcome.Warning = true
	return outcome
}

func setPhase(nc *v1alpha1.NetworkConfiguration, phase v1alpha1.NetworkConfigurationPhase, status, reason, message string) reconcile.Outcome {
	outcome := setReady(nc, phase == v1alpha1.NetworkConfigurationReady, phase, status, reason, message)
	outcome.Warning = phase == v1alpha1.NetworkConfigurationError
	return outcome
}

func setNotReady(nc *v1alpha1.NetworkConfiguration, phase v1alpha1.NetworkConfigurationPhase, reason, message string) reconcile.Outcome {
	return setReady(nc, false, phase, reason, reason, message)
}

func setReady(nc *v1alpha1.NetworkConfiguration, ready bool, phase v1alpha1.NetworkConfigurationPhase, status, reason, message string) reconcile.Outcome {
	s := &nc.Status
	s.Phase, s.Status, s.Message, s.ObservedGeneration = phase, status, message, nc.Generation
	return reconcile.SetReady(&s.Conditions, nc.Generation, ready, reason, message)
}

// scheduleCheck has resync send an event after an interval. It keeps a check that is due
// later than now, so that a redelivery changes nothing.
func scheduleCheck(nc *v1alpha1.NetworkConfiguration, now time.Time, interval time.Duration) {
	if next := nc.Status.NextCheckTime; next == nil || !now.Before(next.Time) {
		nc.Status.NextCheckTime = &metav1.Time{Time: now.Add(interval).Truncate(time.Second)}
	}
}
