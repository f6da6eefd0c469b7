// Package orphans confirms and reports what functions find at their backends: an orphan counts once two checks have found
// it. It removes nothing.
package orphans

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

const (
	// Grace is how long after the first check a later check confirms an orphan. Until then its
	// object may be on its way, or something else may be removing it.
	Grace = 5 * time.Minute
	// Most bounds the orphans that are kept of one backend.
	Most = 100
	// named is how many orphans a message names.
	named = 3
)

// Confirm returns the orphans of a backend after a check at a time. found are the orphans of this check,
// with ID, Name and UID, and known the orphans of the earlier check. Orphans that this check
// did not find are dropped. Of more than Most, the oldest are kept.
func Confirm(known, found []v1alpha1.Orphan, now time.Time) []v1alpha1.Orphan {
	merged, ids := make([]v1alpha1.Orphan, 0, len(found)), map[string]bool{}
	for _, o := range found {
		if ids[o.ID] {
			continue
		}
		ids[o.ID] = true
		o.FirstSeen, o.Confirmed = metav1.NewTime(now.Truncate(time.Second)), false
		if at := slices.IndexFunc(known, func(k v1alpha1.Orphan) bool { return k.ID == o.ID && k.UID == o.UID }); at >= 0 {
			o.FirstSeen = known[at].FirstSeen
			o.Confirmed = known[at].Confirmed || now.Sub(o.FirstSeen.Time) >= Grace
		}
		merged = append(merged, o)
	}
	slices.SortFunc(merged, func(a, b v1alpha1.Orphan) int {
		if c := a.FirstSeen.Compare(b.FirstSeen.Time); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return merged[:min(len(merged), Most)]
}

// Confirmed returns the orphans that two checks have found.
func Confirmed(all []v1alpha1.Orphan) []v1alpha1.Orphan {
	return slices.DeleteFunc(slices.Clone(all), func(o v1alpha1.Orphan) bool { return !o.Confirmed })
}

// Enumerate names the first orphans of a list, and counts the others.
func Enumerate(all []v1alpha1.Orphan) string {
	var names []string
	for _, o := range all[:min(len(all), named)] {
		if o.Name == "" || o.Name == o.ID {
			names = append(names, o.ID)
		} else {
			names = append(names, fmt.Sprintf("%s (%s)", o.ID, o.Name))
		}
	}
	text := strings.Join(names, ", ")
	if more := len(all) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
