package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
)

// The limits of one object's cost, whatever the answers of backends: writes of the object, and
// modifying requests to a backend, per minute. They may be exceeded for one minute at most. Resync,
// which reconciles what is not Ready, comes twenty times as often as in production.
const (
	writesPerMinute  = 120
	changesPerMinute = 60
)

// costs counts requests per minute.
type costs struct {
	// checked is the start of the first unchecked minute.
	checked time.Time
	// many has what exceeded its limit in the previous minute.
	many map[string]int
	// calls are the counts of each simulator at the start of the minute.
	calls map[string]map[string]int
}

// checkLimits checks that nothing exceeds its limit for two consecutive minutes.
func (w *env) checkLimits() {
	w.t.Helper()
	now := time.Now()
	if w.costs.checked.IsZero() {
		w.costs.checked, w.costs.calls = now, w.calls()
		return
	}
	if now.Sub(w.costs.checked) < time.Minute {
		return
	}
	minutes := now.Sub(w.costs.checked).Minutes()
	many := map[string]int{}
	for name, n := range w.writes(w.costs.checked) {
		if rate := int(float64(n) / minutes); rate > writesPerMinute {
			many["the functions write "+name] = rate
		}
	}
	objects := len(w.list(engine.Machines)) + len(w.list(engine.NetworkNamespaces)) + len(w.list(engine.NetworkConfigurations)) + 1
	calls := w.calls()
	for simulator, operations := range calls {
		for operation, n := range operations {
			rate := int(float64(n-w.costs.calls[simulator][operation]) / minutes)
			if changes(operation) && rate > changesPerMinute*objects {
				many[simulator+" is asked for "+operation] = rate
			}
		}
	}
	for _, what := range slices.Sorted(maps.Keys(many)) {
		if before, again := w.costs.many[what]; again {
			w.fail("", "%s %d times a minute, and %d times in the next%s", what, before, many[what], w.churn(what))
		}
	}
	w.costs = costs{checked: now, many: many, calls: calls}
}

// writes counts the writes of each object by functions.
func (w *env) writes(since time.Time) map[string]int {
	w.t.Helper()
	n := map[string]int{}
	for _, r := range w.e.Requests(since) {
		if o := r.ObjectRef; r.Writes() && r.Function() != "" && o.Name != "" && o.Resource != "events" {
			n[fmt.Sprintf("%s %s/%s %s", o.Resource, o.Namespace, o.Name, o.Subresource)]++
		}
	}
	return n
}

// churn returns the changes of an object within some seconds, and the answers to its writes, which
// show the cause of too many writes. It returns an empty string for anything else than an object.
func (w *env) churn(what string) string {
	resources := map[string]schema.GroupVersionResource{"kubernetesclusters": engine.KubernetesClusters, "machines": engine.Machines,
		"networkconfigurations": engine.NetworkConfigurations, "networknamespaces": engine.NetworkNamespaces, "machineproviders": engine.MachineProviders}
	kind, place, _ := strings.Cut(strings.TrimPrefix(what, "the functions write "), " ")
	place, _, _ = strings.Cut(place, " ")
	namespace, name, _ := strings.Cut(place, "/")
	resource, known := resources[kind]
	if !known {
		return ""
	}
	began := time.Now()
	var text strings.Builder
	var before *unstructured.Unstructured
	for time.Since(began) < 10*time.Second && text.Len() < 10_000 {
		if o := w.e.Get(resource, namespace, name); o != nil {
			o.SetManagedFields(nil)
			if before != nil && o.GetResourceVersion() != before.GetResourceVersion() {
				fmt.Fprintf(&text, "\n%s", cmp.Diff(before.Object, o.Object))
			}
			before = o
		}
		time.Sleep(50 * time.Millisecond)
	}
	answers := map[string]int{}
	for _, r := range w.e.Requests(began.Add(-time.Minute)) {
		if o := r.ObjectRef; r.Writes() && o.Resource == kind && o.Name == name {
			answers[fmt.Sprintf("%s %s %d", r.Function(), r.Verb, r.ResponseStatus.Code)]++
		}
	}
	return fmt.Sprintf("\nIts writes by answer: %v. Its changes in ten seconds:%s", answers, text.String())
}

// calls returns the counts of each simulator's operations since its start.
func (w *env) calls() map[string]map[string]int {
	all := map[string]map[string]int{}
	for _, name := range simulators {
		if n, err := w.e.Calls(name); err == nil { // it may have been killed
			all[name] = n
		}
	}
	return all
}

// changes reports whether an operation modifies something.
func changes(operation string) bool {
	method, _, _ := strings.Cut(operation, " ")
	return slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, method) || strings.HasPrefix(operation, "task/")
}
