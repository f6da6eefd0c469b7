package nodeevents

import (
	"sync"
	"time"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Windows of a cluster. A node that boots sends some events a second. A cluster that is Ready waits for nothing, and its reconcile
// compares all nodes.
const (
	window      = time.Second
	readyWindow = 10 * time.Second
)

// windows requests at most one reconcile of a cluster in its window: at once for the first event, and at the end of the window for those that
// came in it.
type windows struct {
	mu sync.Mutex
	// open are the windows by the UID of their cluster.
	open map[string]*requestWindow
	// changed receives a value when a reconcile is requested.
	changed chan struct{}
}

type requestWindow struct {
	cluster *inventory.Object
	pending bool
	ends    time.Time
}

func newWindows() *windows {
	return &windows{open: map[string]*requestWindow{}, changed: make(chan struct{}, 1)}
}

// add requests a reconcile of a cluster.
func (w *windows) add(cluster *inventory.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.open[cluster.UID]
	if r == nil {
		r = &requestWindow{}
		w.open[cluster.UID] = r
	}
	if r.cluster, r.pending = cluster, true; len(w.changed) == 0 {
		w.changed <- struct{}{}
	}
}

// take returns the clusters whose reconcile is requested and whose window has ended, and opens the next window of each. next is when the
// window of another requested cluster ends, or zero if there is none.
func (w *windows) take(now time.Time) (due []*inventory.Object, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, r := range w.open {
		switch {
		case r.pending && now.Before(r.ends):
			if next.IsZero() || r.ends.Before(next) {
				next = r.ends
			}
		case r.pending:
			due = append(due, r.cluster)
			r.pending, r.ends = false, now.Add(windowOf(r.cluster))
		case !now.Before(r.ends):
			delete(w.open, uid)
		}
	}
	return due, next
}

func windowOf(cluster *inventory.Object) time.Duration {
	if cluster.Readiness.Ready {
		return readyWindow
	}
	return window
}
