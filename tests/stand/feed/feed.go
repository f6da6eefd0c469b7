// Package feed turns changes on a test's API server into events for a function, as the event source
// and the broker do for a function in a cluster.
package feed

import (
	"context"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clientwatch "k8s.io/client-go/tools/watch"

	"github.com/vitistack/stack/events"
)

// Kind is a kind to watch.
type Kind struct {
	Resource schema.GroupVersionResource
	Name     string
}

// isCarried reports whether the event of an object carries it, as in knative/sources.yaml.
func isCarried(obj *unstructured.Unstructured) bool {
	switch obj.GetKind() {
	case "KubernetesCluster", "NetworkConfiguration", "IPAllocation", "PersistentVolumeClaim":
		return true
	case "Machine":
		_, ofCluster := obj.GetLabels()["cluster.vitistack.io/role"]
		return ofCluster
	case "VirtualMachine", "VirtualMachineInstance":
		_, withoutSecrets := obj.GetLabels()["vitistack.io/without-secrets"]
		return withoutSecrets
	default:
		return false
	}
}

// retries is the number of retries of a delivery. Their delays grow from pause to longPause, which are
// short for tests.
const (
	retries   = 40
	pause     = 25 * time.Millisecond
	longPause = time.Second
)

// Run calls handle for every object of the kinds in a namespace, or in all namespaces if it is empty,
// and for every later change. Each call has its own goroutine, and is retried after an error that is
// not permanent. Run ends with t, which waits for running calls. It continues a watch that a busy API
// server has ended.
func Run(t testing.TB, config *rest.Config, namespace string, handle events.Handler, kinds ...Kind) {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{handle: handle}
	t.Cleanup(f.running.Wait)
	for _, kind := range kinds {
		resource := client.Resource(kind.Resource).Namespace(namespace)
		present, err := resource.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("list %s: %v", kind.Resource.Resource, err)
		}
		watcher, err := clientwatch.NewRetryWatcherWithContext(t.Context(), present.GetResourceVersion(), cache.ToWatcherWithContext(&cache.ListWatch{
			WatchFuncWithContext: resource.Watch,
		}))
		if err != nil {
			t.Fatalf("watch %s: %v", kind.Resource.Resource, err)
		}
		for i := range present.Items {
			f.deliver(t.Context(), f.event(kind, watch.Added, &present.Items[i]))
		}
		f.running.Go(func() {
			f.follow(t.Context(), kind, watcher)
			if t.Context().Err() == nil {
				t.Errorf("the watch of %s has ended", kind.Resource.Resource)
			}
		})
	}
}

type feed struct {
	handle  events.Handler
	next    atomic.Int64
	running sync.WaitGroup
}

func (f *feed) follow(ctx context.Context, kind Kind, watcher watch.Interface) {
	defer watcher.Stop()
	for change := range watcher.ResultChan() {
		obj, ok := change.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		f.deliver(ctx, f.event(kind, change.Type, obj))
	}
}

func (f *feed) event(kind Kind, change watch.EventType, obj *unstructured.Unstructured) event.Event {
	e := event.New()
	e.SetID(strconv.FormatInt(f.next.Add(1), 10))
	e.SetSource("https://kubernetes")
	e.SetExtension(events.ArrivalTime, time.Now())
	e.SetType(map[watch.EventType]string{
		watch.Added: events.TypeRefAdd, watch.Modified: events.TypeRefUpdate, watch.Deleted: events.TypeRefDelete,
	}[change])
	if isCarried(obj) {
		_ = Carry(&e, obj)
	}
	ref := events.Ref{APIVersion: kind.Resource.GroupVersion().String(), Kind: kind.Name, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	ref.Set(&e, string(obj.GetUID()))
	return e
}

// Carry makes an event carry its object, like an event source in Resource mode.
func Carry(e *event.Event, object any) error {
	e.SetType(strings.Replace(e.Type(), ".ref.", ".resource.", 1))
	return e.SetData(event.ApplicationJSON, object)
}

// deliver calls the function in a goroutine of its own.
func (f *feed) deliver(ctx context.Context, e event.Event) {
	f.running.Go(func() { f.call(ctx, e) })
}

func (f *feed) call(ctx context.Context, e event.Event) {
	wait := pause
	for range retries {
		if _, err := f.handle(ctx, e); err == nil || events.IsPermanent(err) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, longPause)
	}
}

// Until waits for done, and fails t with the state if done does not become true in time. It calls done less often while the state stays
// the same, because a call reads from the API server, whose CPU the awaited function needs.
func Until(t testing.TB, what string, done func() (bool, string)) {
	t.Helper()
	const patience, longest = 4 * time.Minute, 4 * pause
	last, since, wait := "", time.Now(), pause
	for {
		ok, state := done()
		if ok {
			return
		}
		if state != last {
			last, since, wait = state, time.Now(), pause
		}
		if time.Since(since) > patience {
			t.Fatalf("%s: nothing new for %s: %s\nDeliveries that run:\n%s", what, patience, state, deliveries())
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		case <-time.After(wait):
		}
		wait = min(wait+pause/4, longest)
	}
}

// deliveries returns the stacks of the deliveries that run, which show where one hangs.
func deliveries() string {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	var found []string
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "(*feed).call") {
			found = append(found, stack)
		}
	}
	return strings.Join(found, "\n\n")
}
