package main

import (
	"hash/fnv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/due"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// window is the time whose slots a full round includes: those since the start of the previous full
// round, which is zero if it is unknown.
type window struct{ previous, start time.Time }

// needsReconcile reports whether an object is due at a time, or a full round includes it. full is
// nil for another round.
func needsReconcile(k kind, o object, now time.Time, full *window) bool {
	need := due.Decide(k.name, &metav1.ObjectMeta{
		Generation: o.Metadata.Generation, DeletionTimestamp: o.Metadata.DeletionTimestamp, Annotations: o.Metadata.Annotations,
	}, o.Status.Status)
	if !need.Never {
		return need.Due(now)
	}
	ready := o.Status.Ready().Status == metav1.ConditionTrue
	return full != nil && ready && k.interval != 0 && isIncluded(o, k.interval, *full)
}

// isIncluded reports whether a full round includes an object with a part outside of the API
// server. If not every round does, the UID of the object determines its slot, so that the
// objects are spread over the rounds. A round that starts late includes the slots that were missed.
func isIncluded(o object, interval time.Duration, w window) bool {
	if !o.hasExternalPart() {
		return false
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(o.Metadata.UID))
	slots := int64(interval / fullRoundInterval)
	last := slotAt(w.start)
	first := last
	if !w.previous.IsZero() {
		first = max(min(slotAt(w.previous)+1, last), last-slots+1)
	}
	own := int64(hash.Sum32()) % slots
	for n := first; n <= last; n++ {
		if n%slots == own {
			return true
		}
	}
	return false
}

// slotAt returns the number of the slot at a time.
func slotAt(t time.Time) int64 { return t.Unix() / int64(fullRoundInterval/time.Second) }

// hasExternalPart reports whether a system that sends no events keeps a part of the object:
// Kea the reservations of a network of type dhcp, and NAM or NetBox the segment of a network.
func (o object) hasExternalPart() bool {
	if p := o.Spec.IPAllocation; p == nil || p.Type == string(v1alpha2.AllocationDHCP) {
		return true
	}
	asked := o.Metadata.Annotations[v1alpha1.AnnotationProvider]
	return asked == v1alpha2.ProviderNAM || asked == v1alpha2.ProviderNetBox
}
