package workload

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// backlog is how many changes a watcher may be behind before its watch ends. It then has to list
// again.
const backlog = 256

type watcher struct {
	kind    *kind
	changes chan change
	cut     bool
}

func (w *watcher) offer(c change) {
	if w.cut {
		return
	}
	select {
	case w.changes <- c:
	default:
		w.cut = true
		close(w.changes)
	}
}

// wireEvent is one line of a watch's answer.
type wireEvent struct {
	Type   watch.EventType `json:"type"`
	Object runtime.Object  `json:"object"`
}

// watchFrom registers a watcher and returns its first events.
func (c *Cluster) watchFrom(r *request, q query) (*watcher, []wireEvent, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first []wireEvent
	switch since, err := strconv.ParseUint(q.resourceVersion, 10, 64); {
	case q.resourceVersion == "" || q.resourceVersion == "0" || q.sendInitialEvents:
		for _, obj := range c.store.list(r.kind, r.namespace) {
			if q.matches(r, obj) {
				first = append(first, wireEvent{watch.Added, obj})
			}
		}
		if q.sendInitialEvents {
			first = append(first, wireEvent{watch.Bookmark, c.bookmark(r.kind)})
		}
	case err != nil:
		return nil, nil, apierrors.NewBadRequest("invalid resource version: " + q.resourceVersion)
	case since < c.oldest():
		return nil, nil, apierrors.NewResourceExpired("too old resource version: " + q.resourceVersion)
	default:
		for _, past := range c.store.history {
			if past.revision > since && past.kind == r.kind {
				if e, ok := q.event(r, past); ok {
					first = append(first, e)
				}
			}
		}
	}
	w := &watcher{kind: r.kind, changes: make(chan change, backlog)}
	c.store.watchers[w] = struct{}{}
	return w, first, nil
}

// oldest returns the first revision that a watch can start after.
func (c *Cluster) oldest() uint64 {
	if len(c.store.history) == 0 {
		return c.store.revision
	}
	return c.store.history[0].revision - 1
}

func (c *Cluster) bookmark(k *kind) runtime.Object {
	obj := k.empty()
	m := metaOf(obj)
	m.SetResourceVersion(strconv.FormatUint(c.store.revision, 10))
	m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return obj
}

func (c *Cluster) forget(w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.store.watchers, w)
}

// serveWatch streams changes until the client disconnects, its timeout passes, it falls behind, or the
// API server stops.
func (c *Cluster) serveWatch(w http.ResponseWriter, req *http.Request, r *request, q query) error {
	sub, first, err := c.watchFrom(r, q)
	if err != nil {
		return err
	}
	defer c.forget(sub)
	ctx := req.Context()
	if q.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, q.timeout)
		defer cancel()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := json.NewEncoder(w)
	flush := http.NewResponseController(w).Flush
	for _, e := range first {
		if out.Encode(e) != nil {
			return nil
		}
	}
	for {
		if flush() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case change, open := <-sub.changes:
			if !open {
				return nil
			}
			if e, ok := q.event(r, change); ok && out.Encode(e) != nil {
				return nil
			}
		}
	}
}

// event translates a change for a watcher's selection: an object that enters the selection was added,
// and one that leaves it was deleted.
func (q query) event(r *request, c change) (wireEvent, bool) {
	now := c.event != watch.Deleted && q.matches(r, c.object)
	before := c.previous != nil && q.matches(r, c.previous)
	switch {
	case now && before:
		return wireEvent{watch.Modified, c.object}, true
	case now:
		return wireEvent{watch.Added, c.object}, true
	case before:
		return wireEvent{watch.Deleted, c.object}, true
	}
	return wireEvent{}, false
}

// maxWatch limits a watch without a timeout, as in the real API server.
const maxWatch = 30 * time.Minute
