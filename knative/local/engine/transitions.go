package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// progress is the phase of an object, and why it is not ready.
type progress struct {
	phase   string
	reason  string // why it is not ready; empty if it is, or reports no reason
	message string
}

// read returns the phase in status.phase or status.provisioningPhase, and the reason in the condition
// Ready.
func read(object *unstructured.Unstructured) progress {
	var s progress
	for _, field := range []string{"provisioningPhase", "phase"} {
		if phase, _, _ := unstructured.NestedString(object.Object, "status", field); phase != "" {
			s.phase = phase
			break
		}
	}
	if object.GetDeletionTimestamp() != nil {
		s.phase = "Deleting"
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		c, ok := item.(map[string]any)
		if ok && c["type"] == "Ready" && c["status"] != "True" {
			s.reason, s.message = text(c["reason"]), text(c["message"])
		}
	}
	return s
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

// formatTransition returns the line for a change of progress. It returns false if phase and reason are the same, or if
// the new reason only repeats the phase. took is how long the object was in the old phase.
func formatTransition(before, now progress, took time.Duration) (string, bool) {
	waiting := ""
	if now.reason != "" && !strings.EqualFold(now.reason, now.phase) {
		waiting = strings.TrimSuffix("waiting: "+now.reason+": "+now.message, ": ")
	}
	switch {
	case now.phase != before.phase && before.phase != "":
		line := fmt.Sprintf("%s → %s  (%.1f s)", before.phase, now.phase, took.Seconds())
		return strings.TrimSpace(line + "  " + waiting), true
	case now.phase != before.phase:
		return strings.TrimSpace(now.phase + "  " + waiting), true
	case waiting != "" && now.reason != before.reason:
		return strings.TrimSpace(now.phase + "  " + waiting), true
	}
	return "", false
}

// transitionPrinter prints a line for each transition of the objects of some kinds.
type transitionPrinter struct {
	printer *printer

	mu    sync.Mutex
	since map[types.UID]time.Time // of the present phase of an object
}

// printTransitions watches the kinds until background ends. It prints nothing for the objects that exist at its start.
func printTransitions(ctx, background context.Context, c *cluster, p *printer, kinds []*apiextensionsv1.CustomResourceDefinition) error {
	n := &transitionPrinter{printer: p, since: map[types.UID]time.Time{}}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(c.dynamic, 0)
	for _, crd := range kinds {
		version, ok := storedVersion(crd)
		if !ok {
			continue
		}
		r, err := c.kind(version)
		if err != nil {
			return err
		}
		kind := crd.Spec.Names.Kind
		if _, err := factory.ForResource(r.GroupVersionResource).Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(object any, initial bool) { n.added(kind, object.(*unstructured.Unstructured), initial) },
			UpdateFunc: func(before, now any) {
				n.updated(kind, before.(*unstructured.Unstructured), now.(*unstructured.Unstructured))
			},
			DeleteFunc: func(object any) { n.deleted(kind, object) },
		}); err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
	}
	factory.Start(background.Done())
	factory.WaitForCacheSync(ctx.Done())
	return nil
}

func (n *transitionPrinter) added(kind string, object *unstructured.Unstructured, initial bool) {
	n.enter(object.GetUID())
	if initial {
		return
	}
	if line, ok := formatTransition(progress{}, read(object), 0); ok {
		n.print(kind, object, line)
		return
	}
	n.print(kind, object, "created")
}

func (n *transitionPrinter) updated(kind string, before, now *unstructured.Unstructured) {
	old, current := read(before), read(now)
	took := n.age(now.GetUID())
	if old.phase != current.phase {
		took = n.enter(now.GetUID())
	}
	if line, ok := formatTransition(old, current, took); ok {
		n.print(kind, now, line)
	}
}

func (n *transitionPrinter) deleted(kind string, object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	gone, ok := object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	took := n.enter(gone.GetUID())
	n.mu.Lock()
	delete(n.since, gone.GetUID())
	n.mu.Unlock()
	if phase := read(gone).phase; phase != "" {
		n.print(kind, gone, fmt.Sprintf("%s → gone  (%.1f s)", phase, took.Seconds()))
		return
	}
	n.print(kind, gone, "gone")
}

// enter records that an object enters a phase now, and returns the duration of the previous one.
func (n *transitionPrinter) enter(uid types.UID) time.Duration {
	took := n.age(uid)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.since[uid] = time.Now()
	return took
}

func (n *transitionPrinter) age(uid types.UID) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if began, ok := n.since[uid]; ok {
		return time.Since(began)
	}
	return 0
}

func (n *transitionPrinter) print(kind string, object *unstructured.Unstructured, line string) {
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	n.printer.event("%s %s  %s", kind, name, line)
}
