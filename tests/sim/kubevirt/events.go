package kubevirt

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recorder records Kubernetes Events, each at most once. It records warnings only, because Events of
// the normal course would double the number of writes.
type recorder struct {
	events *kind[*corev1.Event]

	mu   sync.Mutex
	seen map[sighting]bool
}

type sighting struct {
	of              types.UID
	reason, message string
}

func newRecorder(events *kind[*corev1.Event]) *recorder {
	return &recorder{events: events, seen: map[sighting]bool{}}
}

// warn records a Warning about an object, unless it has recorded the same before. A failed write is
// ignored.
func (r *recorder) warn(ctx context.Context, component string, about corev1.ObjectReference, reason, message string) {
	s := sighting{of: about.UID, reason: reason, message: message}
	r.mu.Lock()
	known := r.seen[s]
	r.seen[s] = true
	r.mu.Unlock()
	if known {
		return
	}
	digest := fnv.New64a()
	_, _ = fmt.Fprint(digest, about.UID, reason, message)
	now := metav1.Now()
	_, _ = r.events.create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: about.Namespace,
			Name:      fmt.Sprintf("%s.%x", about.Name, digest.Sum64()),
		},
		InvolvedObject: about,
		Type:           corev1.EventTypeWarning,
		Reason:         reason,
		Message:        message,
		Source:         corev1.EventSource{Component: component},
		FirstTimestamp: now,
		LastTimestamp:  now,
		Count:          1,
	})
}

// forget lets the Events of a deleted object be recorded again for its successor.
func (r *recorder) forget(of types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.seen {
		if s.of == of {
			delete(r.seen, s)
		}
	}
}
