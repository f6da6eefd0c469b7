package plan

import (
	"fmt"
	"strings"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// ReasonOverlap is the reason of a network whose segment overlaps that of another one.
const ReasonOverlap = "SegmentOverlap"

// DatacentersVariable is the environment variable with the list that ParseDatacenters reads.
const DatacentersVariable = "SEPARATE_DATACENTERS"

// Datacenters are the data centres that share no bridge with another one, so that both can have a network of the
// same prefix and VLAN. Only the platform team knows.
type Datacenters map[v1alpha2.Identifier]bool

// ParseDatacenters reads a comma-separated list of data centres.
func ParseDatacenters(list string) Datacenters {
	separate := Datacenters{}
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" {
			separate[v1alpha2.Identifier(name)] = true
		}
	}
	return separate
}

// AreSeparate reports whether two networks are in data centres that share no bridge.
func (d Datacenters) AreSeparate(a, b *v1alpha2.NetworkNamespace) bool {
	one, other := DatacenterOf(a), DatacenterOf(b)
	return one != other && (d[one] || d[other])
}

// claimState is how far a network has come with a segment.
type claimState int

const (
	// noClaim is a network without a segment, whose next segment is unknown.
	noClaim claimState = iota
	// requested is a network whose spec describes the segment.
	requested
	// claimed is a network whose status has the segment, and which is not Ready yet.
	claimed
	// held is a network that is Ready or being deleted: machines may use the segment.
	held
)

// claimOf returns how far a network has come with which segment.
func claimOf(nn *v1alpha2.NetworkNamespace) (claimState, segment.Segment) {
	if s, err := segment.FromStatus(nn); err == nil {
		if HoldsSegment(nn) {
			return held, s
		}
		return claimed, s
	}
	provider, _ := ProviderOf(nn.Spec)
	if provider != v1alpha2.ProviderManual || nn.DeletionTimestamp != nil || nn.Status.ProvisioningPhase == v1alpha2.ProvisioningError {
		return noClaim, segment.Segment{}
	}
	s, err := segment.FromSpec(nn)
	if err != nil {
		return noClaim, segment.Segment{}
	}
	return requested, s
}

// HasClaimed reports whether the status of a network that is not Ready has a segment already.
func HasClaimed(nn *v1alpha2.NetworkNamespace, seg segment.Segment) bool {
	state, has := claimOf(nn)
	return state == claimed && has.Same(seg)
}

// isOlder reports whether a was created before b. The UID decides between two networks of
// the same second.
func isOlder(a, b *v1alpha2.NetworkNamespace) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// precedence is what a network does about another network whose segment overlaps.
type precedence int

const (
	continues precedence = iota
	waitsForOther
	givesUp
)

// decidePrecedence compares a network with another one whose segment overlaps:
//
//	network    other      the network
//	held       held       gives up if it is younger
//	held       else       continues
//	else       held       gives up
//	claimed    claimed    gives up if it is younger, else waits for the other
//	claimed    requested  continues
//	requested  claimed    gives up
//	requested  requested  gives up if it is younger
//
// A network becomes Ready only after it has claimed its segment and then found no other
// network that claims or holds it. Of two networks at least the one that claims later finds
// the other, so that never both become Ready, whatever their age.
func decidePrecedence(own, other claimState, older bool) precedence {
	switch {
	case own == held && other == held, own == requested && other == requested:
		if older {
			return continues
		}
		return givesUp
	case own == held, other == noClaim, own == claimed && other == requested:
		return continues
	case own == claimed && other == claimed && older:
		return waitsForOther
	default:
		return givesUp
	}
}

// CheckOverlap compares a network with the networks that exist. It returns a usererror.Error if another one has
// the segment that nn would have, and reports whether nn waits for a younger network to give the segment up.
// Networks in separate data centres have nothing to do with each other.
func CheckOverlap(nn *v1alpha2.NetworkNamespace, seg segment.Segment, others []v1alpha2.NetworkNamespace, separate Datacenters) (waits bool, err error) {
	own, has := claimOf(nn)
	if own == noClaim || !has.Same(seg) {
		own = requested
	}
	for i := range others {
		other := &others[i]
		state, theirs := claimOf(other)
		if other.UID == nn.UID || state == noClaim || separate.AreSeparate(nn, other) || !seg.Overlaps(theirs) && !conflictsInVLAN(seg, theirs, nn, other) {
			continue
		}
		switch decidePrecedence(own, state, isOlder(nn, other)) {
		case givesUp:
			return false, overlapError(nn, seg, other, theirs)
		case waitsForOther:
			waits = true
		}
	}
	return waits, nil
}

// conflictsInVLAN reports whether a segment with an exclusive VLAN is in the VLAN of another
// namespace. Whether the VLAN of the other network is exclusive does not matter.
func conflictsInVLAN(seg, theirs segment.Segment, nn, other *v1alpha2.NetworkNamespace) bool {
	return seg.ExclusiveVLAN && seg.VLAN != 0 && seg.VLAN == theirs.VLAN && nn.Namespace != other.Namespace
}

// overlapError returns the error of a network whose segment overlaps that of holder.
func overlapError(nn *v1alpha2.NetworkNamespace, seg segment.Segment, holder *v1alpha2.NetworkNamespace, theirs segment.Segment) usererror.Error {
	if !seg.Overlaps(theirs) {
		return usererror.Error{Reason: ReasonOverlap, Message: fmt.Sprintf(
			"VLAN %d is that of NetworkNamespace %s/%s: choose another VLAN, delete that network, or ask the platform team to set spec.shareVLANs in a NetworkPool",
			seg.VLAN, holder.Namespace, holder.Name)}
	}
	return usererror.Error{Reason: ReasonOverlap, Message: fmt.Sprintf(
		"%s (VLAN %d) overlaps %s of NetworkNamespace %s/%s: %s, or delete that network",
		seg.Prefixes(), seg.VLAN, theirs.Prefixes(), holder.Namespace, holder.Name, otherSegmentAdvice(nn, theirs.Prefixes()))}
}

// otherSegmentAdvice says how a network gets another segment than one whose addresses are used. A provider that chooses the segment
// gives it out again unless it knows of the use.
func otherSegmentAdvice(nn *v1alpha2.NetworkNamespace, used string) string {
	provider, _ := ProviderOf(nn.Spec)
	if provider == v1alpha2.ProviderManual {
		return "choose another prefix or VLAN"
	}
	return fmt.Sprintf("delete this network, have the network team mark %s as used at provider %s, which has chosen the segment, and create this network again", used, provider)
}
