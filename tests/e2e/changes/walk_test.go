package changes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/changes"
)

// TestChanges makes every change of the tables to objects that are settled.
func TestChanges(t *testing.T) {
	t.Parallel()
	w := build(t)
	t.Run("Refusals", func(*testing.T) { w.checkRefusals(t) })
	t.Run("WrongValues", func(*testing.T) { w.checkWrongValues(t) })
	t.Run("Faults", func(*testing.T) { w.checkFaults(t) })
	t.Run("Effects", func(*testing.T) { w.checkEffects(t) })
}

// checkRefusals makes the changes that the API server has to refuse, as a dry run.
func (w *world) checkRefusals(t *testing.T) {
	for kind, rows := range allRows() {
		for _, r := range rows {
			if !r.Outcome.IsRefusal() {
				continue
			}
			s, known := subjects[r.on]
			if !known {
				t.Errorf("%s spec.%s: there is no object %q", kind, r.field, r.on)
				continue
			}
			err := w.try(s, r.fields(), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), r.Text) {
				t.Errorf("%s spec.%s of %s: want %s refused with %q, got %v", kind, r.field, r.on, r.to, r.Text, err)
			}
		}
	}
}

// fields returns all fields that a row changes, with their values.
func (r row) fields() map[string]string {
	all := map[string]string{cmp.Or(r.at, r.field): r.to}
	for path, value := range r.with {
		all[path] = value
	}
	return all
}

// checkEffects makes the other changes, those of one object at the same time, and waits for what they
// have to lead to. What needs a restart does not show before it.
func (w *world) checkEffects(t *testing.T) {
	changed, waiting := map[string]map[string]string{}, map[string][]row{}
	for _, rows := range allRows() {
		for _, r := range rows {
			if r.check == nil {
				continue
			}
			if changed[r.on] == nil {
				changed[r.on] = map[string]string{}
			}
			for path, value := range r.fields() {
				changed[r.on][path] = value
			}
			waiting[r.on] = append(waiting[r.on], r)
		}
	}
	for on, fields := range changed {
		if err := w.try(subjects[on], fields, metav1.UpdateOptions{}); err != nil {
			t.Errorf("%s: the changes of the table are refused: %v", on, err)
			delete(waiting, on)
		}
	}
	for on, rows := range waiting {
		w.restartIfNeeded(t, on, rows)
	}
	w.awaitEffects(t, waiting)
}

// awaitEffects waits until all checks have succeeded.
func (w *world) awaitEffects(t *testing.T, waiting map[string][]row) {
	const patience = 2 * time.Minute
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		missing := map[string]string{}
		for on, rows := range waiting {
			waiting[on] = slices.DeleteFunc(rows, func(r row) bool {
				state := r.check(w)
				if state != "" {
					_, reason, message := w.condition(subjects[on], "Ready")
					missing[on+": spec."+r.field] = fmt.Sprintf("%.300s (Ready: %s: %s)", state, reason, message)
				}
				return state == ""
			})
		}
		if len(missing) == 0 {
			return
		}
		if time.Now().After(end) {
			for field, state := range missing {
				t.Errorf("%s has no effect after %s: %s", field, patience, state)
			}
			return
		}
	}
}

// restartToken is the new value with which the walk restarts machines.
const restartToken = "changes"

// restartIfNeeded waits for the condition that says which changes need a restart, checks that these have
// no effect yet, and restarts the machine.
func (w *world) restartIfNeeded(t *testing.T, on string, rows []row) {
	if !slices.ContainsFunc(rows, func(r row) bool { return r.Outcome == changes.AtRestart }) {
		return
	}
	w.until(on+" says that it needs a restart", func() string {
		status, _, _ := w.condition(subjects[on], "RestartRequired")
		return is(status, "True")
	})
	for _, r := range rows {
		if r.Outcome == changes.AtRestart && r.check(w) == "" {
			t.Errorf("%s: spec.%s has its effect without the restart that the table names", on, r.field)
		}
	}
	w.change(subjects[on], map[string]string{"restartToken": restartToken})
}
