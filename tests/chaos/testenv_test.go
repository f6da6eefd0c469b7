package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/clock"
	"github.com/vitistack/stack/tests/stand/engine"
)

// subject identifies an object of the run.
type subject struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

func (s subject) String() string { return s.resource.Resource + " " + s.namespace + "/" + s.name }

// env is an engine to which a random sequence of steps happens. A seed determines the sequence;
// the interleaving of the engine's parts depends on the machine.
type env struct {
	t        *testing.T
	settings settings
	e        *engine.Engine
	n        *Network
	api      *API
	// clocks are the clocks of functions, or nil if all are right.
	clocks *clock.Clocks
	began  time.Time
	log    []string
	// lossy is whether events were lost. An IPAM learns from one event that a segment is free, and a
	// broker that is killed may lose it.
	lossy bool
	// at is the number of the present step, and did the numbers of the steps so far.
	at  int
	did []int
	// living has the planned state of each existing object.
	living map[subject]want
	order  []subject
	// keys has the UID of the Secret with the keys for each cluster's UID, and etcds the etcd for each
	// authority of a cluster.
	keys  map[string]string
	etcds map[string]uint64
	costs costs
	// protected has the UIDs of protected objects, crashed the addresses of the nodes that are down, by the UIDs of their
	// Machines, and cut the clusters whose workers have no network.
	protected map[subject]types.UID
	crashed   map[types.UID]string
	cut       map[subject]bool
	// pools has what earlier checks have found about the pools of clusters.
	pools map[subject]*poolState
}

// base is the prefix of the addresses at which the engine's guests can be reached.
func (w *env) base() string { return strings.TrimSuffix(w.e.Network().Addr().String(), ".0") }

// record adds a line to the record of the run.
func (w *env) record(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%6.1fs #%d  ", time.Since(w.began).Seconds(), w.at)+fmt.Sprintf(format, args...))
}

// fail ends the test with the relevant part of the record: everything that happened in the same
// namespace or concerns all of them.
func (w *env) fail(namespace, format string, args ...any) {
	w.t.Helper()
	var lines []string
	for _, line := range w.log {
		other := false
		for _, ns := range namespaces {
			other = other || (ns != namespace && namespace != "" && strings.Contains(line, " "+ns+"/"))
		}
		if !other {
			lines = append(lines, line)
		}
	}
	w.t.Fatalf("%s\nSeed %d. The steps before it:\n%s\n%s", fmt.Sprintf(format, args...), w.settings.seed, strings.Join(lines, "\n"), w.repeatShorter())
}

// try retries a request until the API server answers, because a step may have just killed it. An error
// from the API server ends the test.
func (w *env) try(what string, ask func(ctx context.Context) error) {
	w.t.Helper()
	const patience = 4 * time.Minute
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

// create creates the object of a manifest, and records its planned state.
func (w *env) create(s subject, to want, manifest map[string]any) {
	w.t.Helper()
	text, err := json.Marshal(manifest)
	if err != nil {
		w.t.Fatal(err)
	}
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &obj.Object); err != nil {
		w.t.Fatal(err)
	}
	obj.SetNamespace(s.namespace)
	obj.SetName(s.name)
	w.record("create %s %s", s, text)
	w.try("create "+s.String(), func(ctx context.Context) error {
		_, err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Create(ctx, obj, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if apierrors.IsAlreadyExists(err) {
			return nil // the first answer was lost
		}
		return err
	})
	w.living[s] = to
	w.order = append(w.order, s)
}

// patch changes an object's spec, and records its planned state.
func (w *env) patch(s subject, to want, merge string) {
	w.t.Helper()
	if _, lives := w.living[s]; !lives {
		return // the step that creates it was removed
	}
	w.record("patch %s %s", s, merge)
	w.try("patch "+s.String(), func(ctx context.Context) error {
		_, err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Patch(ctx, s.name, types.MergePatchType, []byte(merge), metav1.PatchOptions{})
		return err
	})
	w.living[s] = to
}

// remove deletes an object. A protected one is unprotected first, after the API server has refused the deletion.
func (w *env) remove(s subject) {
	w.t.Helper()
	if _, lives := w.living[s]; !lives {
		return // the step that creates it was removed
	}
	w.requireProtection(s)
	w.unprotect(s)
	w.record("delete %s", s)
	w.try("delete "+s.String(), func(ctx context.Context) error {
		err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Delete(ctx, s.name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	delete(w.living, s)
	delete(w.pools, s)
}

// list reads all objects of a kind.
func (w *env) list(resource schema.GroupVersionResource) []unstructured.Unstructured {
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

// get reads an object, or returns nil if it does not exist.
func (w *env) get(s subject) (obj *unstructured.Unstructured) {
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

// until calls look until it returns no reason to wait. After patience it ends the test with the reason
// and the record of the namespace.
func (w *env) until(patience, pause time.Duration, look func() (namespace, why string)) {
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

func (w *env) count(resource schema.GroupVersionResource) int {
	n := 0
	for s := range w.living {
		if s.resource == resource {
			n++
		}
	}
	return n
}

func phaseOf(obj *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(obj.Object, "status", "phase")
	if provisioning, _, _ := unstructured.NestedString(obj.Object, "status", "provisioningPhase"); provisioning != "" {
		phase = provisioning
	}
	return phase
}
