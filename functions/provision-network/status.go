package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// story is what people are told about a decision.
type story struct {
	reason, message string
	warning         bool
	// news is whether it has not been told before.
	news bool
}

// decide writes into nn's status what became of asking for its segment at a time:
//
//	err      before  provisioningPhase  phase    status        Ready
//	nil              Ready              Active   OK            True   Provisioned
//	refused  Ready   Ready              Active   OK            False  its reason
//	refused          Error              Error    its reason    False  its reason
//	fault    Ready   Ready              Active   OK            False  its reason
//	final            Error              Error    its reason    False  its reason
//	waiting          Pending            Pending  its reason    False  its reason
//
// A segment that has been Ready stays in the status, whatever the source or the spec says
// later: machines are using it. One that has only been claimed is given up where somebody
// has to change something.
func decide(nn *v1alpha2.NetworkNamespace, seg segment, err error, now time.Time) story {
	var r refused
	var f fault
	s := &nn.Status
	switch {
	case err == nil:
		describe(nn, seg)
		return settleAs(nn, v1alpha2.ProvisioningReady, "Active", "OK", reasonProvisioned, provisioned(nn))
	case errors.As(err, &r) && holds(nn):
		return settleAs(nn, s.ProvisioningPhase, "Active", "OK", r.reason, r.message)
	case errors.As(err, &r):
		forget(nn)
		return settleAs(nn, v1alpha2.ProvisioningError, "Error", r.reason, r.reason, r.message)
	case !errors.As(err, &f):
		return story{}
	}
	lasting := lastingFor(nn, now)
	var told story
	switch {
	case s.ProvisioningPhase == v1alpha2.ProvisioningReady:
		told = settleAs(nn, s.ProvisioningPhase, "Active", "OK", f.reason, f.message)
	case f.final:
		forget(nn)
		told = settleAs(nn, v1alpha2.ProvisioningError, "Error", f.reason, f.reason, f.message)
	default:
		told = settleAs(nn, v1alpha2.ProvisioningPending, "Pending", f.reason, f.reason, f.message)
	}
	s.NextCheckTime = at(now, f.wait(lasting))
	return told
}

const reasonProvisioned = "Provisioned"

func settleAs(nn *v1alpha2.NetworkNamespace, provisioning v1alpha2.ProvisioningPhase, phase, status, reason, message string) story {
	s := &nn.Status
	s.DatacenterIdentifier, s.SupervisorIdentifier = datacenterOf(nn), nn.Spec.SupervisorIdentifier
	s.ProvisioningPhase, s.Phase, s.Status = provisioning, phase, status
	s.ObservedGeneration = nn.Generation
	s.NextCheckTime = nil
	ok := reason == reasonProvisioned
	news := kube.SetReady(&s.Conditions, nn.Generation, ok, reason, message)
	return story{reason: reason, message: message, warning: !ok && reason != reasonWorking, news: news}
}

// lastingFor is for how long a network has been without what it wants.
func lastingFor(nn *v1alpha2.NetworkNamespace, now time.Time) time.Duration {
	c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue || c.ObservedGeneration != nn.Generation {
		return 0
	}
	return now.Sub(c.LastTransitionTime.Time)
}

// at is the time of an API object a while after now, in whole seconds.
func at(now time.Time, wait time.Duration) *metav1.Time {
	t := metav1.NewTime(now.Add(wait).Truncate(time.Second).Add(time.Second))
	return &t
}

// nextCheck is when to look again, and the zero time where nothing says so.
func nextCheck(nn *v1alpha2.NetworkNamespace) time.Time {
	if nn.Status.NextCheckTime == nil {
		return time.Time{}
	}
	return nn.Status.NextCheckTime.Time
}

// restsUntil is when the source of a network is to be asked again, and the zero
// time where it may be asked now.
func restsUntil(nn *v1alpha2.NetworkNamespace, now time.Time) time.Time {
	next := nextCheck(nn)
	if !now.Before(next) || nn.Status.ObservedGeneration != nn.Generation || kube.AskedFor(nn) {
		return time.Time{}
	}
	return next
}

// provided tells whether a network has what its spec asks for.
func provided(nn *v1alpha2.NetworkNamespace) bool {
	return nn.Status.ObservedGeneration == nn.Generation && nn.Status.ProvisioningPhase == v1alpha2.ProvisioningReady &&
		meta.IsStatusConditionTrue(nn.Status.Conditions, v1alpha1.ConditionReady)
}

// deleting writes into nn's status what its deletion waits for.
func deleting(nn *v1alpha2.NetworkNamespace, reason, message string) story {
	nn.Status.ProvisioningPhase, nn.Status.Phase, nn.Status.Status = v1alpha2.ProvisioningDeleting, phaseDeleting, reason
	nn.Status.ObservedGeneration = nn.Generation
	nn.Status.NextCheckTime = nil
	news := kube.SetReady(&nn.Status.Conditions, nn.Generation, false, reason, message)
	return story{reason: reason, message: message, news: news, warning: reason != reasonInUse && reason != reasonReleasing}
}

// describe copies the segment into the status.
func describe(nn *v1alpha2.NetworkNamespace, seg segment) {
	s := &nn.Status
	s.NamespaceID = seg.id
	s.IPv4Prefix, s.IPv4Gateway, s.IPv4EgressIP = text(seg.ipv4), text(seg.ipv4Gateway), text(seg.ipv4Egress)
	s.IPv6Prefix, s.IPv6Gateway, s.IPv6EgressIP = text(seg.ipv6), text(seg.ipv6Gateway), text(seg.ipv6Egress)
	s.VLANID = seg.vlan
	s.DNS = seg.dns
}

// forget takes out of the status what a network that is refused does not have.
func forget(nn *v1alpha2.NetworkNamespace) {
	describe(nn, segment{})
	nn.Status.IPAllocationSummary = nil
}

func provisioned(nn *v1alpha2.NetworkNamespace) string {
	provider, inferred := providerOf(nn.Spec)
	if inferred {
		return fmt.Sprintf("provider %s, which spec.networkProvisioning leaves to be inferred, has provided the segment", provider)
	}
	return fmt.Sprintf("provider %s has provided the segment", provider)
}

// providerOf is the one provider that serves a network, and whether it is
// inferred: a network that describes itself in ipAllocation.static is manual.
func providerOf(spec v1alpha2.NetworkNamespaceSpec) (provider string, inferred bool) {
	if spec.NetworkProvisioning != nil {
		return spec.NetworkProvisioning.Provider, false
	}
	if a := spec.IPAllocation; a != nil && a.Static != nil && a.Static.IPv4CIDR != "" && a.Static.IPv4Gateway != "" {
		return v1alpha2.ProviderManual, true
	}
	return v1alpha2.ProviderNAM, true
}

// sentence joins names for people, and counts those beyond the first few.
func sentence(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
