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

// What one object may cost, whatever a backend answers: not longer than a minute more than
// this many writes a minute to itself, and requests a minute that change something at a
// backend. Resync, which looks at what is not Ready, comes twenty times as often as in
// production.
const (
	writesPerMinute  = 120
	changesPerMinute = 60
)

// costs counts requests by the minute.
type costs struct {
	// checked is the beginning of the first minute that was not looked at.
	checked time.Time
	// many has what cost too much in the minute before.
	many map[string]int
	// calls are those that each simulator had counted at the beginning of the minute.
	calls map[string]map[string]int
}

// bounded checks that nothing costs too much for two minutes one after the other.
func (w *env) bounded() {
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

// writes counts the requests of functions that change an object, by object.
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

// churn returns the changes of an object within some seconds, and how its writes were
// answered, so that the cause of too many writes can be seen. It returns nothing for what is
// no object.
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

// calls are the operations that simulators were asked for since they started.
func (w *env) calls() map[string]map[string]int {
	all := map[string]map[string]int{}
	for _, name := range simulators {
		if n, err := w.e.Calls(name); err == nil { // it may have been killed
			all[name] = n
		}
	}
	return all
}

// changes reports whether an operation is a request that changes something.
func changes(operation string) bool {
	method, _, _ := strings.Cut(operation, " ")
	return slices.Contains([]string{"POST", "PUT", "PATCH", "DELETE"}, method) || strings.HasPrefix(operation, "task/")
}
