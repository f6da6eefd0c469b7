package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

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

// decide writes into nn's status what became of asking for its segment:
//
//	err        provisioningPhase  phase    status         Ready
//	nil        Ready              Active   OK             True   Provisioned
//	errPending Pending            Pending  Provisioning   False  Provisioning
//	refused    Error              Error    its reason     False  its reason
//	other      Pending, or Ready where it has been        False  SourceUnavailable
//
// A segment that has been Ready stays in the status when its source fails later:
// machines are using it.
func decide(nn *v1alpha2.NetworkNamespace, seg segment, err error) story {
	var r refused
	s := &nn.Status
	switch {
	case err == nil:
		describe(nn, seg)
		return settleAs(nn, v1alpha2.ProvisioningReady, "Active", "OK", "Provisioned", provisioned(nn))
	case errors.As(err, &r):
		return settleAs(nn, v1alpha2.ProvisioningError, "Error", r.reason, r.reason, r.message)
	case errors.Is(err, errPending):
		return settleAs(nn, v1alpha2.ProvisioningPending, "Pending", "Provisioning", "Provisioning", "the provider is making the segment")
	case s.ProvisioningPhase == v1alpha2.ProvisioningReady:
		return settleAs(nn, s.ProvisioningPhase, s.Phase, s.Status, "SourceUnavailable", err.Error())
	default:
		return settleAs(nn, v1alpha2.ProvisioningPending, "Pending", "SourceUnavailable", "SourceUnavailable", err.Error())
	}
}

func settleAs(nn *v1alpha2.NetworkNamespace, provisioning v1alpha2.ProvisioningPhase, phase, status, reason, message string) story {
	s := &nn.Status
	s.ProvisioningPhase, s.Phase, s.Status = provisioning, phase, status
	s.ObservedGeneration = nn.Generation
	s.NextCheckTime = nil
	ok := reason == "Provisioned"
	news := kube.SetReady(&s.Conditions, nn.Generation, ok, reason, message)
	return story{reason: reason, message: message, warning: !ok && reason != "Provisioning", news: news}
}

// deleting writes into nn's status what its deletion waits for.
func deleting(nn *v1alpha2.NetworkNamespace, reason, message string) story {
	nn.Status.Phase, nn.Status.Status = "Deleting", reason
	nn.Status.ObservedGeneration = nn.Generation
	news := kube.SetReady(&nn.Status.Conditions, nn.Generation, false, reason, message)
	return story{reason: reason, message: message, news: news}
}

// describe copies the segment into the status.
func describe(nn *v1alpha2.NetworkNamespace, seg segment) {
	s := &nn.Status
	s.DatacenterIdentifier, s.SupervisorIdentifier = nn.Spec.DatacenterIdentifier, nn.Spec.SupervisorIdentifier
	s.NamespaceID = seg.id
	s.IPv4Prefix, s.IPv4Gateway, s.IPv4EgressIP = text(seg.ipv4), text(seg.ipv4Gateway), text(seg.ipv4Egress)
	s.IPv6Prefix, s.IPv6Gateway, s.IPv6EgressIP = text(seg.ipv6), text(seg.ipv6Gateway), text(seg.ipv6Egress)
	s.VLANID = seg.vlan
	s.DNS = seg.dns
}

// text writes a prefix or an address, and nothing for one that is not there.
func text[T interface {
	netip.Prefix | netip.Addr
	IsValid() bool
	String() string
}](v T) string {
	if !v.IsValid() {
		return ""
	}
	return v.String()
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
