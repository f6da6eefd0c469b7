package cause

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Link is an object in a chain of causes.
type Link struct {
	Ref
	Ready bool `json:"ready"`
	// Phase is the phase of the object, and Reason and Message are those of its condition Ready.
	Phase   string `json:"phase,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Since is when the condition Ready became what it is, or when the object was created.
	Since time.Time `json:"since,omitzero"`
	// Owner is the role that has to act, and Remedy what it does.
	Owner  Role   `json:"turn"`
	Remedy string `json:"remedy"`
}

// Chain returns the objects from the one with a name down to the one that is the cause. It is
// empty if the Set lacks the object. The last Link says whose turn it is. An object whose own
// reason is a mistake in its spec is the cause. One that waits leads to the object that it waits
// for, if that is not Ready.
func (s *Set) Chain(r Ref) []Link {
	o := s.objects[r]
	if o == nil {
		return nil
	}
	return s.follow(o, nil)
}

// Explain returns the Chain of an object at a time. If the object at its end has waited for longer
// than three minutes, and no role had to act for it, it is overdue: a role has to find out why.
func (s *Set) Explain(r Ref, now time.Time) []Link {
	chain := s.Chain(r)
	if len(chain) == 0 {
		return nil
	}
	last := &chain[len(chain)-1]
	if last.Ready || last.Owner != NoAction || !isOverdue(*last, now) {
		return chain
	}
	late := AdviseOverdue(last.Kind)
	last.Owner, last.Remedy = late.Owner, late.Remedy
	return chain
}

// follow returns the chain of an object. passed are the objects above it.
func (s *Set) follow(o *Object, passed []*Object) []Link {
	chain := []Link{linkOf(o)}
	if o.IsReady() {
		return chain
	}
	if advice, ok := s.adviseInUse(o); ok {
		chain[0].Owner, chain[0].Remedy = advice.Owner, advice.Remedy
		return chain
	}
	var best []Link
	for _, next := range s.waitedFor(o) {
		if next.IsReady() || slices.Contains(passed, next) {
			continue
		}
		found := s.follow(next, append(slices.Clone(passed), o))
		if best == nil || isBetter(found, best, o.ready().Message) {
			best = found
		}
	}
	return append(chain, best...)
}

// adviseInUse returns the advice for an object that is being deleted while objects that are not being deleted use it. It does not proceed
// until a user deletes them.
func (s *Set) adviseInUse(o *Object) (Advice, bool) {
	advice := Advise(o.Kind, o.ready().Reason)
	if !o.Deleting || o.ready().Reason != "InUse" || advice.Owner != NoAction || o.paused != nil || !slices.ContainsFunc(s.users(o), s.isKept) {
		return Advice{}, false
	}
	if advice.Owner = Requester; o.Kind == kindProvider {
		advice.Owner = PlatformTeam
	}
	return advice, true
}

// isKept reports whether neither an object nor one that it was created for is being deleted.
func (s *Set) isKept(o *Object) bool {
	for range len(rank) {
		if o.Deleting {
			return false
		}
		if o = s.objects[o.owner]; o == nil {
			break
		}
	}
	return true
}

// waitedFor returns the objects that an object may wait for: the objects of the kinds that its reason
// names, and the objects that its message names, because a condition that waits for an object has
// the name and the message of that object.
func (s *Set) waitedFor(o *Object) []*Object {
	ready := o.ready()
	in := Advise(o.Kind, ready.Reason).in
	candidates := s.needed(o)
	if ready.Reason == "InUse" || ready.Reason == "Deleting" {
		candidates = append(candidates, s.users(o)...)
	}
	var all []*Object
	for _, kind := range in {
		for _, next := range candidates {
			if next.Kind == kind && next.reports() {
				all = append(all, next)
			}
		}
	}
	for _, next := range candidates {
		if next.reports() && !slices.Contains(all, next) && names(ready.Message, next.Kind+" "+next.Name) {
			all = append(all, next)
		}
	}
	return all
}

// isBetter reports whether a chain explains more than another: its end needs an action, or the
// message of the object above names its first object.
func isBetter(a, b []Link, message string) bool {
	if x, y := needsAction(a), needsAction(b); x != y {
		return x
	}
	return names(message, a[0].Name) && !names(message, b[0].Name)
}

func needsAction(chain []Link) bool { return chain[len(chain)-1].Owner != NoAction }

// names reports whether a message has a name as a word of its own.
func names(message, name string) bool {
	return strings.Contains(message, name) && regexp.MustCompile(`(^|[^a-zA-Z0-9.-])`+regexp.QuoteMeta(name)+`($|[^a-zA-Z0-9-])`).MatchString(message)
}

// linkOf returns an object as a Link.
func linkOf(o *Object) Link {
	c := o.ready()
	l := Link{Ref: o.Ref, Ready: o.IsReady(), Phase: o.Phase, Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time}
	if l.Since.IsZero() {
		l.Since = o.Created
	}
	advice := advise(o.Kind, c.Reason, o.templateAdvice)
	switch {
	case !o.reports(), l.Ready && c.Reason != "Stopped":
		advice = Advice{Owner: NoAction, Remedy: isGood}
	case o.paused != nil && !o.IsReady():
		advice = Advice{Owner: o.paused.Owner, Remedy: o.paused.Remedy}
	case o.ObservedGeneration < o.Generation && c.Reason != "" && c.Status == "True":
		advice = Advice{Owner: NoAction, Remedy: "No action: the spec has just changed, and is reconciled next."}
	case o.Deleting && c.Status == "True":
		advice = Advice{Owner: NoAction, Remedy: "No action: the object is being deleted."}
	}
	l.Owner, l.Remedy = advice.Owner, advice.Remedy
	return l
}

// Warning is a condition other than Ready that needs attention, or a pause by annotation.
type Warning struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Owner   Role   `json:"turn"`
	Remedy  string `json:"remedy"`
	// Since is the last transition of the condition, or when the annotation was set if that is known.
	Since time.Time `json:"since,omitzero"`
}

// badWhenTrue are the conditions that are True when something needs attention.
var badWhenTrue = []string{v1alpha1.ConditionRestartRequired, v1alpha1.ConditionOrphansFound, v1alpha1.ConditionForced}

// Warnings returns the pause and the conditions other than Ready that need attention, in the order of the object.
func (o *Object) Warnings() []Warning {
	return warnings(o.Kind, o.paused, o.templateAdvice, o.Conditions)
}

// Warnings returns what needs attention of an object of a kind beside its condition Ready: the annotation vitistack.io/paused, and then those
// conditions that do, in their order. It leaves out conditions that need no action, and conditions that Ready sums up. Kinds of others have none.
func Warnings(kind string, m metav1.Object, conditions []metav1.Condition) []Warning {
	return warnings(kind, pauseOf(kind, m), TemplateAdvice(kind, m, conditions), conditions)
}

func warnings(kind string, paused *Warning, ofTemplate map[string]Advice, conditions []metav1.Condition) []Warning {
	if !slices.Contains(reporting, kind) {
		return nil
	}
	var all []Warning
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if paused != nil && (ready == nil || ready.Reason != paused.Reason) {
		all = append(all, *paused)
	}
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionReady || !IsBad(c.Type, c.Status) || sumsUp(ready, c) {
			continue
		}
		if advice := advise(kind, c.Reason, ofTemplate); advice.Owner != NoAction {
			all = append(all, Warning{c.Type, c.Reason, c.Message, advice.Owner, advice.Remedy, c.LastTransitionTime.UTC()})
		}
	}
	return all
}

// IsBad reports whether a condition with a status says that something is not as it should be.
func IsBad(condition string, status metav1.ConditionStatus) bool {
	if slices.Contains(badWhenTrue, condition) {
		return status == metav1.ConditionTrue
	}
	return status == metav1.ConditionFalse
}

// sumsUp reports whether the condition Ready, which may be nil, already says what another condition says.
func sumsUp(ready *metav1.Condition, c metav1.Condition) bool {
	if ready == nil || ready.Status == metav1.ConditionTrue {
		return false
	}
	return c.Reason == ready.Reason || strings.Contains(ready.Message, c.Message)
}
