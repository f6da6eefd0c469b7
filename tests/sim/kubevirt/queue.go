package kubevirt

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// workers is the number of concurrent workers. More of them would only wait for the API server.
const workers = 4

// Errors are retried after retryFirst, and then at growing intervals up to retryLast.
const (
	retryFirst = 50 * time.Millisecond
	retryLast  = 5 * time.Second
)

// topic is the kind of object that a key is about.
type topic string

const (
	machines topic = "machine" // a VirtualMachine and its instance, or only an instance
	claims   topic = "claim"   // a PersistentVolumeClaim
	volumes  topic = "volume"  // a PersistentVolume
	imports  topic = "import"  // a DataVolume
)

// key identifies an object to reconcile.
type key struct {
	topic           topic
	namespace, name string
}

// queue holds each key at most once, and passes a key to one worker at a time.
type queue struct {
	workqueue.TypedRateLimitingInterface[key]
}

func newQueue() *queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[key](retryFirst, retryLast)
	return &queue{workqueue.NewTypedRateLimitingQueue(limiter)}
}

// reconciler reconciles one key, and returns when to do so again without a change. Zero means never.
type reconciler func(ctx context.Context, k key) (again time.Duration, err error)

// work runs the workers, and returns when ctx has ended and they have finished.
func (q *queue) work(ctx context.Context, reconcile reconciler, log *slog.Logger) {
	stop := context.AfterFunc(ctx, q.ShutDown)
	defer stop()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for q.next(ctx, reconcile, log) {
			}
		})
	}
	running.Wait()
}

func (q *queue) next(ctx context.Context, reconcile reconciler, log *slog.Logger) bool {
	k, ended := q.Get()
	if ended {
		return false
	}
	defer q.Done(k)
	again, err := reconcile(ctx, k)
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil:
		level := slog.LevelWarn
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || errors.Is(err, errFault) {
			level = slog.LevelDebug // a conflict, or a planned fault
		}
		log.Log(ctx, level, "try again later", "topic", k.topic, "namespace", k.namespace, "name", k.name, "error", err)
		q.AddRateLimited(k)
	default:
		q.Forget(k)
		if again > 0 {
			q.AddAfter(k, again)
		}
	}
	return true
}
