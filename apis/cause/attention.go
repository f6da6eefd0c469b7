package cause

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Problem is what needs attention: objects with the same cause, and what waits for them.
type Problem struct {
	// Link is the first of the objects.
	Link
	// Condition is the type of the condition. It is Ready for an object that is not Ready.
	Condition string `json:"condition"`
	// Others are further objects with the same cause.
	Others []Ref `json:"others,omitempty"`
	// Blocks are the objects that wait for these.
	Blocks []Ref `json:"blocks,omitempty"`
	// key is equal for objects that are listed together, and paused whether they have the annotation vitistack.io/paused.
	key    string
	paused bool
}

// Attention returns what needs attention at a time, in the order of the roles that have to act and
// then the oldest first. An object that waits is listed with the object that it waits for. A wait is
// a problem after three minutes, and a reason that needs an action at once.
func (s *Set) Attention(now time.Time) []Problem {
	groups := map[string]*Problem{}
	add := func(p Problem) *Problem {
		group := groups[p.key]
		if group == nil {
			groups[p.key] = &p
			return &p
		}
		if group.Ref != p.Ref && !slices.Contains(group.Others, p.Ref) {
			group.Others = append(group.Others, p.Ref)
		}
		if p.Since.Before(group.Since) {
			group.Since = p.Since
		}
		return group
	}
	for _, o := range s.reporting() {
		isCause := false
		if !o.IsReady() {
			chain := s.Explain(o.Ref, now)
			last := chain[len(chain)-1]
			isCause = last.Ref == o.Ref
			if IsStuck(last, now) || IsStuck(chain[0], now) {
				reason, paused := last.Reason, s.objects[last.Ref].paused != nil
				if paused {
					reason += " " + WarningPaused // the same reason of an object that is not paused has another remedy
				}
				group := add(Problem{Link: last, Condition: "Ready", key: s.groupKey(last.Ref, reason), paused: paused})
				if last.Ref != o.Ref {
					group.Blocks = append(group.Blocks, o.Ref)
				}
			}
		}
		for _, w := range o.Warnings() {
			if w.Type == WarningPaused && isCause {
				continue // its entry has the remedy
			}
			l := Link{Ref: o.Ref, Ready: o.IsReady(), Phase: o.Phase, Reason: w.Reason, Message: w.Message, Owner: w.Owner, Remedy: w.Remedy, Since: cmp.Or(w.Since, o.Created)}
			add(Problem{Link: l, Condition: w.Type, key: w.Type + " " + s.groupKey(o.Ref, w.Reason), paused: w.Type == WarningPaused})
		}
	}
	return sortProblems(groups)
}

// reporting returns the objects with the condition Ready, in their order.
func (s *Set) reporting() []*Object {
	var all []*Object
	for _, o := range s.objects {
		if o.reports() {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, compareObjects)
	return all
}

// groupKey returns a key that is equal for objects with the same cause: Machines of one cluster,
// and interfaces and addresses in one network, with the same reason. A mistake in the spec of an
// interface or an address is its own cause.
func (s *Set) groupKey(r Ref, reason string) string {
	o := s.objects[r]
	name, group := r.Name, ""
	switch r.Kind {
	case kindMachine:
		if o.owner.Name != "" {
			name, group = "", o.owner.String()
		}
	case kindConfiguration, kindAllocation:
		if Advise(r.Kind, reason).Owner == Requester {
			break
		}
		for _, used := range o.uses {
			if used.Kind == kindNetwork {
				name, group = "", used.String()
			}
		}
	}
	return strings.Join([]string{r.Kind, r.Namespace, name, group, reason}, "|")
}

func sortProblems(groups map[string]*Problem) []Problem {
	all := make([]Problem, 0, len(groups))
	for _, p := range groups {
		slices.SortFunc(p.Blocks, compareRefs)
		if p.paused {
			p.Remedy = PausedRemedy(p.Ref, p.Others...)
		}
		all = append(all, *p)
	}
	order := []Role{Requester, NetworkTeam, PlatformTeam, NoAction}
	slices.SortFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Owner), slices.Index(order, b.Owner)), a.Since.Compare(b.Since), compareRefs(a.Ref, b.Ref))
	})
	return all
}
