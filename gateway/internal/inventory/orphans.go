package inventory

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Orphans is what the stack created at a backend for objects that do not exist. Two checks of a function have confirmed each.
type Orphans struct {
	All []v1alpha1.Orphan
	// Message names the first orphans, and says how to remove them.
	Message string
	Since   time.Time
}

// Report is the ConfigMap with the orphans of backends that have no object of their own.
type Report struct {
	Orphans map[string]Orphans
}

// newOrphans returns the orphans that two checks have confirmed.
func newOrphans(found []v1alpha1.Orphan, message string) (o Orphans) {
	for _, f := range found {
		if !f.Confirmed {
			continue
		}
		if first := f.FirstSeen.UTC(); o.Since.IsZero() || first.Before(o.Since) {
			o.Since = first
		}
		o.All = append(o.All, f)
	}
	if len(o.All) > 0 {
		o.Message = message
	}
	return o
}

func (o Orphans) names() (names []string) {
	for _, f := range o.All {
		names = append(names, f.ID)
	}
	return names
}

// orphanCondition is the condition OrphansFound, or empty.
func orphanCondition(conditions []metav1.Condition) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionOrphansFound); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// fromReport reads the ConfigMap orphans. A report that cannot be read counts as empty until the
// next check writes it.
func fromReport(c *corev1.ConfigMap) (*Object, error) {
	facts := &Report{Orphans: map[string]Orphans{}}
	for _, backend := range OrphanBackends {
		var r v1alpha1.OrphanReport
		if text := c.Data[backend]; text == "" || json.Unmarshal([]byte(text), &r) != nil {
			continue
		}
		facts.Orphans[backend] = newOrphans(r.Orphans, r.Message)
	}
	o, err := newObject(KindReport, "v1", &c.ObjectMeta, facts, nil, nil)
	if err != nil {
		return nil, err
	}
	o.Annotations = nil
	return o, nil
}

// orphansJSON are the orphans of one backend in the summary. Name is the backend's MachineProvider, if it has one.
type orphansJSON struct {
	Backend string    `json:"backend"`
	Name    string    `json:"name,omitempty"`
	Count   int       `json:"count"`
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
}

// orphanGroups returns the backends with orphans, and the number of orphans by kind of backend. An orphan that several
// MachineProviders report counts once.
func orphanGroups(providers, reports []*Object) (groups []orphansJSON, counts map[string]int) {
	counts = map[string]int{}
	counted := map[[3]string]bool{}
	add := func(backend, name string, o Orphans) {
		if len(o.All) == 0 {
			return
		}
		groups = append(groups, orphansJSON{Backend: backend, Name: name, Count: len(o.All), Message: o.Message, Since: o.Since})
		for _, f := range o.All {
			if at := [3]string{backend, f.ID, f.UID}; !counted[at] {
				counted[at] = true
				counts[backend]++
			}
		}
	}
	for _, p := range providers {
		f := p.Facts.(*Provider)
		add(f.Type, p.Name, f.Orphans)
	}
	for _, r := range reports {
		for backend, o := range r.Facts.(*Report).Orphans {
			add(backend, "", o)
		}
	}
	slices.SortFunc(groups, func(a, b orphansJSON) int {
		return cmp.Or(cmp.Compare(slices.Index(OrphanBackends, a.Backend), slices.Index(OrphanBackends, b.Backend)), cmp.Compare(a.Name, b.Name))
	})
	return groups, counts
}

// Orphans returns the number of orphans at a kind of backend.
func (s *Snapshot) Orphans(backend string) int { return s.orphanCounts[backend] }
