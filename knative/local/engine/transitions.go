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

// story is what an object tells of itself.
type story struct {
	phase   string
	reason  string // why it is not ready; empty when it is, or does not say
	message string
}

// read takes the phase from status.phase or status.provisioningPhase and the reason from the condition Ready.
func read(object *unstructured.Unstructured) story {
	var s story
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

// tell returns the line for a change from one story to the next, and false when there is nothing to tell: the phase is
// the same, and the reason too, or it only repeats the phase. took is how long the object was in the old phase.
func tell(before, now story, took time.Duration) (string, bool) {
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

// narrator prints a line for each transition of the objects of some kinds.
type narrator struct {
	printer *printer

	mu    sync.Mutex
	since map[types.UID]time.Time // of the phase an object is in
}

// narrate watches the kinds until background ends. What is there at its start is not told.
func narrate(ctx, background context.Context, c *cluster, p *printer, kinds []*apiextensionsv1.CustomResourceDefinition) error {
	n := &narrator{printer: p, since: map[types.UID]time.Time{}}
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

func (n *narrator) added(kind string, object *unstructured.Unstructured, initial bool) {
	n.enter(object.GetUID())
	if initial {
		return
	}
	if line, ok := tell(story{}, read(object), 0); ok {
		n.print(kind, object, line)
		return
	}
	n.print(kind, object, "created")
}

func (n *narrator) updated(kind string, before, now *unstructured.Unstructured) {
	old, current := read(before), read(now)
	took := n.age(now.GetUID())
	if old.phase != current.phase {
		took = n.enter(now.GetUID())
	}
	if line, ok := tell(old, current, took); ok {
		n.print(kind, now, line)
	}
}

func (n *narrator) deleted(kind string, object any) {
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

// enter notes that an object enters a phase now, and returns how long it was in the one before.
func (n *narrator) enter(uid types.UID) time.Duration {
	took := n.age(uid)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.since[uid] = time.Now()
	return took
}

func (n *narrator) age(uid types.UID) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if began, ok := n.since[uid]; ok {
		return time.Since(began)
	}
	return 0
}

func (n *narrator) print(kind string, object *unstructured.Unstructured, line string) {
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	n.printer.event("%s %s  %s", kind, name, line)
}
