package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// Reasons of the condition Ready that more than one function uses, and the phase of a
// network that is being deleted.
const (
	reasonProvisioned = "Provisioned"
	reasonAsking      = "Asking"
	reasonInUse       = "InUse"
	reasonReleasing   = "Releasing"
	phaseDeleting     = "Deleting"
)

// setSegmentResult writes the result of a request for a segment into the status of nn:
//
//	err                        before  provisioningPhase  phase    status      Ready
//	nil                                Ready              Active   OK          True   Provisioned
//	UserError                  Ready   Ready              Active   OK          False  its reason
//	UserError                          Error              Error    its reason  False  its reason
//	provider.Error             Ready   Ready              Active   OK          False  its reason
//	provider.Error, permanent          Error              Error    its reason  False  its reason
//	provider.Error                     Pending            Pending  its reason  False  its reason
//
// A segment that has been Ready stays in the status, whatever the provider or the spec says
// later, because machines use it. A segment that was only claimed is removed from the status
// if a user has to change something. Until then a provider that is asked for segments is asked again after a delay, as after other permanent errors.
func setSegmentResult(nn *v1alpha2.NetworkNamespace, seg segment.Segment, err error, now time.Time) reconcile.Outcome {
	if err == nil {
		segment.SetStatus(nn, seg)
		return setStatus(nn, v1alpha2.ProvisioningReady, reasonProvisioned, provisionedMessage(nn))
	}
	var failure provider.Error
	userError, isUserError := reconcile.AsUserError(err)
	if isUserError {
		failure = provider.Error{Reason: userError.Reason, Message: userError.Message, Permanent: true}
	} else if !errors.As(err, &failure) {
		return reconcile.Outcome{}
	}
	failing, phase := failingFor(nn, now), v1alpha2.ProvisioningPending
	switch {
	case isReady(nn), isUserError && plan.HoldsSegment(nn):
		phase = nn.Status.ProvisioningPhase
	case failure.Permanent:
		clearSegment(nn)
		phase = v1alpha2.ProvisioningError
	}
	outcome := setStatus(nn, phase, failure.Reason, failure.Message)
	if providerName, _ := plan.ProviderOf(nn.Spec); !isUserError || providerName != v1alpha2.ProviderManual {
		nn.Status.NextCheckTime = checkTime(now, failure.Delay(failing))
	}
	return outcome
}

// setStatus writes phases and the condition Ready of a network.
func setStatus(nn *v1alpha2.NetworkNamespace, phase v1alpha2.ProvisioningPhase, reason, message string) reconcile.Outcome {
	s := &nn.Status
	s.DatacenterIdentifier, s.SupervisorIdentifier = plan.DatacenterOf(nn), nn.Spec.SupervisorIdentifier
	s.ProvisioningPhase, s.Phase, s.Status = phase, string(phase), reason
	if phase == v1alpha2.ProvisioningReady {
		s.Phase, s.Status = "Active", "OK"
	}
	s.ObservedGeneration, s.NextCheckTime = nn.Generation, nil
	o := reconcile.SetReady(&s.Conditions, nn.Generation, reason == reasonProvisioned, reason, message)
	o.Warning = reason != reasonProvisioned && reason != provider.ReasonWorking
	return o
}

// setDeleting writes what the deletion of a network waits for.
func setDeleting(nn *v1alpha2.NetworkNamespace, reason, message string) reconcile.Outcome {
	s := &nn.Status
	s.ProvisioningPhase, s.Phase, s.Status = v1alpha2.ProvisioningDeleting, phaseDeleting, reason
	s.ObservedGeneration, s.NextCheckTime = nn.Generation, nil
	o := reconcile.SetReady(&s.Conditions, nn.Generation, false, reason, message)
	o.Warning = reason != reasonInUse && reason != reasonReleasing
	return o
}

func provisionedMessage(nn *v1alpha2.NetworkNamespace) string {
	providerName, inferred := plan.ProviderOf(nn.Spec)
	if inferred {
		return fmt.Sprintf("provider %s, inferred because spec.networkProvisioning is not set, has provided the segment", providerName)
	}
	return fmt.Sprintf("provider %s has provided the segment", providerName)
}

// joinNames joins names for a message, and counts those after the first few.
func joinNames(names []string) string {
	const maxNames = 5
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}
