package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
)

// subject is an object that the story is about.
type subject struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

func (s subject) String() string { return s.resource.Resource + " " + s.namespace + "/" + s.name }

// world is an engine to which a story happens. The same seed tells the same story;
// how the engine's parts interleave is up to the machine.
type world struct {
	t      *testing.T
	e      *engine.Engine
	n      *Network
	random *rand.Rand
	began  time.Time
	story  []string
	// living has what was made and not deleted, with the phase that it has to come to.
	living map[subject]string
	order  []subject
	next   int
}

// tell adds a line to the story.
func (w *world) tell(format string, args ...any) {
	w.story = append(w.story, fmt.Sprintf("%6.1fs  ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

// fail ends the test with the part of the story that concerns what went wrong:
// all that happened to the same namespace, and everything that hit them all.
func (w *world) fail(namespace, format string, args ...any) {
	w.t.Helper()
	var lines []string
	for _, line := range w.story {
		other := false
		for _, ns := range namespaces {
			other = other || (ns != namespace && namespace != "" && strings.Contains(line, " "+ns+"/"))
		}
		if !other {
			lines = append(lines, line)
		}
	}
	w.t.Fatalf("%s\nThe story that led there:\n%s", fmt.Sprintf(format, args...), strings.Join(lines, "\n"))
}

// try asks the API server until it answers, since the story may have just killed it.
// What the API server refuses ends the test.
func (w *world) try(what string, ask func(ctx context.Context) error) {
	w.t.Helper()
	const patience = time.Minute
	deadline := time.Now().Add(patience)
	for {
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
		err := ask(ctx)
		cancel()
		if err == nil {
			return
		}
		var refused apierrors.APIStatus
		if errors.As(err, &refused) && refused.Status().Code < http.StatusTooManyRequests && !apierrors.IsConflict(err) && !apierrors.IsUnauthorized(err) {
			w.fail("", "%s: %v", what, err)
		}
		if time.Now().After(deadline) {
			w.fail("", "%s: not after %s: %v", what, patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// create makes an object of a manifest, which has to come to a phase.
func (w *world) create(s subject, phase, manifest string) {
	w.t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &obj.Object); err != nil {
		w.t.Fatalf("read %s: %v", manifest, err)
	}
	obj.SetNamespace(s.namespace)
	obj.SetName(s.name)
	w.tell("create %s", s)
	w.try("create "+s.String(), func(ctx context.Context) error {
		_, err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Create(ctx, obj, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if apierrors.IsAlreadyExists(err) {
			return nil // the first answer was lost
		}
		return err
	})
	w.living[s] = phase
	w.order = append(w.order, s)
}

// patch changes an object's spec, which then has to come to a phase.
func (w *world) patch(s subject, phase, merge string) {
	w.t.Helper()
	w.tell("patch %s %s", s, merge)
	w.try("patch "+s.String(), func(ctx context.Context) error {
		_, err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Patch(ctx, s.name, types.MergePatchType, []byte(merge), metav1.PatchOptions{})
		return err
	})
	w.living[s] = phase
}

// remove asks for an object to go.
func (w *world) remove(s subject) {
	w.t.Helper()
	w.tell("delete %s", s)
	w.try("delete "+s.String(), func(ctx context.Context) error {
		err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Delete(ctx, s.name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	delete(w.living, s)
}

// list reads all objects of a kind.
func (w *world) list(resource schema.GroupVersionResource) []unstructured.Unstructured {
	w.t.Helper()
	var items []unstructured.Unstructured
	w.try("list "+resource.Resource, func(ctx context.Context) error {
		list, err := w.e.Client.Resource(resource).List(ctx, metav1.ListOptions{})
		if err == nil {
			items = list.Items
		}
		return err
	})
	return items
}

// get reads an object, and is nil where it is gone.
func (w *world) get(s subject) (obj *unstructured.Unstructured) {
	w.t.Helper()
	w.try("get "+s.String(), func(ctx context.Context) (err error) {
		obj, err = w.e.Client.Resource(s.resource).Namespace(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			obj, err = nil, nil
		}
		return err
	})
	return obj
}

// until looks again and again until look gives no reason to wait. Out of patience,
// it ends the test with the reason and the story of the namespace.
func (w *world) until(patience, pause time.Duration, look func() (namespace, why string)) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		namespace, why := look()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			w.fail(namespace, "not after %s: %s", patience, why)
		}
		time.Sleep(pause)
	}
}

// pick is one of what lives of a kind, in the order in which it was made.
func (w *world) pick(resource schema.GroupVersionResource) (subject, bool) {
	var all []subject
	for _, s := range w.order {
		if _, lives := w.living[s]; lives && s.resource == resource {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return subject{}, false
	}
	return all[w.random.IntN(len(all))], true
}

func (w *world) count(resource schema.GroupVersionResource) int {
	n := 0
	for s := range w.living {
		if s.resource == resource {
			n++
		}
	}
	return n
}

// name is one that was not used before.
func (w *world) name(prefix string) string {
	w.next++
	return fmt.Sprintf("%s-%d", prefix, w.next)
}

func phaseOf(obj *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
	if provisioning, _, _ := unstructured.NestedString(obj.Object, "status", "provisioningPhase"); provisioning != "" {
		phase = provisioning
	}
	return phase
}
