package watch

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// States of a kind.
const (
	// Pending is a kind that has not been listed yet.
	Pending = "pending"
	// Synced is a kind whose objects are in the store and watched.
	Synced = "synced"
	// Absent is a kind that the API server does not serve.
	Absent = "absent"
	// Forbidden is a kind that the gateway may not list.
	Forbidden = "forbidden"
	// Failing is a kind that cannot be listed for another reason.
	Failing = "failing"
)

// pageSize is the number of objects in one page of a list.
const pageSize = 500

// Watcher watches all kinds. It retries a kind that the API server does not serve or does not allow, without delaying the others.
type Watcher struct {
	store   *inventory.Store
	log     *slog.Logger
	sources []source
	clients map[inventory.Kind]rest.Interface
	params  runtime.ParameterCodec

	mu       sync.Mutex
	progress map[inventory.Kind]Progress
	synced   chan struct{}
}

// Progress is the progress of the watch of one kind.
type Progress struct {
	State string
	// Since is when State last changed.
	Since time.Time
	// Message is the error in the states Forbidden and Failing.
	Message string
	// Optional marks a kind whose failure does not delay the start.
	Optional bool
}

// New returns a watcher that fills a store. functions is the namespace of the stack's Knative Services.
func New(config *rest.Config, functions string, store *inventory.Store, log *slog.Logger) (*Watcher, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	w := &Watcher{
		store: store, log: log, sources: sources(functions),
		params:   runtime.NewParameterCodec(scheme),
		progress: map[inventory.Kind]Progress{}, synced: make(chan struct{}),
	}
	if w.clients, err = clients(config, scheme, w.sources); err != nil {
		return nil, err
	}
	for _, s := range w.sources {
		w.progress[s.kind] = Progress{State: Pending, Since: time.Now(), Optional: s.optional}
	}
	return w, nil
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	quiet := logr.Discard()
	ctx = klog.NewContext(ctx, quiet)
	var all sync.WaitGroup
	for _, s := range w.sources {
		all.Go(func() { w.watch(ctx, s, &quiet) })
	}
	all.Wait()
}

func (w *Watcher) watch(ctx context.Context, s source, quiet *logr.Logger) {
	from := &listerWatcher{
		source: s, client: w.clients[s.kind], params: w.params,
		failed:  func(err error) { w.failed(s.kind, err) },
		resumed: func() { w.resumed(s.kind) },
	}
	to := &sink{kind: s.kind, store: w.store, synced: func() { w.reached(s.kind, Synced, "") }}
	reflector := cache.NewReflectorWithOptions(from, nil, to, cache.ReflectorOptions{
		Logger: quiet, Name: "gateway " + string(s.kind), TypeDescription: s.resource,
		Backoff: &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5, Cap: 5 * time.Second},
	})
	reflector.WatchListPageSize = pageSize
	reflector.RunWithContext(ctx)
}

func (w *Watcher) failed(kind inventory.Kind, err error) {
	switch {
	case apierrors.IsNotFound(err):
		// The objects of a kind that the API server does not serve do not exist.
		w.store.Replace(kind, nil)
		w.reached(kind, Absent, "")
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		w.reached(kind, Forbidden, err.Error())
	default:
		w.reached(kind, Failing, err.Error())
	}
}

// resumed records that the watch of a kind works again.
func (w *Watcher) resumed(kind inventory.Kind) {
	if p := w.Progress()[kind]; p.State == Failing || p.State == Forbidden {
		w.reached(kind, Synced, "")
	}
}

// reached records a kind's progress, and logs a change.
func (w *Watcher) reached(kind inventory.Kind, to, message string) {
	w.mu.Lock()
	before := w.progress[kind]
	if before.State != to {
		w.progress[kind] = Progress{State: to, Since: time.Now(), Message: message, Optional: before.Optional}
	}
	if w.allSynced() {
		select {
		case <-w.synced:
		default:
			close(w.synced)
		}
	}
	w.mu.Unlock()
	if before.State == to {
		return
	}
	switch to {
	case Synced:
		w.log.Info("Watching", "kind", kind)
	case Absent:
		w.log.Info("Kind is not served, trying again", "kind", kind)
	default:
		w.log.Warn("Cannot watch, trying again", "kind", kind, "error", message)
	}
}

// allSynced reports whether every kind is in the store, not served, not allowed,
// or optional and failing.
func (w *Watcher) allSynced() bool {
	for _, p := range w.progress {
		if p.State == Pending || (p.State == Failing && !p.Optional) {
			return false
		}
	}
	return true
}

// Synced returns a channel that is closed once every kind is in the store, not served, not allowed, or optional and failing.
func (w *Watcher) Synced() <-chan struct{} { return w.synced }

// Progress returns the progress of each kind.
func (w *Watcher) Progress() map[inventory.Kind]Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.progress)
}

var _ cache.ListerWatcherWithContext = &listerWatcher{}
var _ metav1.Object = &compact{}
