package broker

import (
	"net/http"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
)

// delivery is one event on its way to one subscriber, or to the dead letter sink.
type delivery struct {
	event  event.Event // shared between Triggers: never changed
	key    string      // that orders it
	header http.Header
	hops   int32
	tries  int  // that failed
	first  bool // the next attempt is the first one, which keeps the order of its key
	dead   binding.Transformers
}

// lane has the events of one key without a finished first attempt, in the order of their arrival. The first one is being sent, or is sent next.
type lane []*delivery

// queue has the deliveries of a Trigger. First attempts of one key run in order, one at a time. Everything else runs concurrently. A delivery that waits
// for its next attempt is in no lane.
type queue struct {
	broker *Broker

	mu      sync.Mutex
	trigger Trigger
	closed  bool
	lanes   map[string]lane
	ready   []*delivery
	stats   TriggerStats
}

func newQueue(b *Broker, t Trigger) *queue {
	return &queue{broker: b, trigger: t, lanes: map[string]lane{}}
}

func (q *queue) current() Trigger {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.trigger
}

func (q *queue) replace(t Trigger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.trigger = t
}

// close drops deliveries that have not started. Running attempts are completed.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	waiting := len(q.ready)
	for _, l := range q.lanes {
		waiting += len(l) - 1
	}
	q.broker.held.Add(int64(-waiting))
	q.ready, q.lanes = nil, map[string]lane{}
}

// push adds a new delivery.
func (q *queue) push(d *delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.broker.held.Add(1)
	q.stats.Received++
	q.lanes[d.key] = append(q.lanes[d.key], d)
	if len(q.lanes[d.key]) == 1 {
		q.ready = append(q.ready, d)
		q.run()
	}
}

// retry adds a delivery again, after a delay.
func (q *queue) retry(d *delivery, delay time.Duration) {
	q.stats.Waiting++
	q.broker.after(delay, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.stats.Waiting--
		q.again(d)
	})
}

func (q *queue) again(d *delivery) {
	if q.closed {
		q.broker.held.Add(-1)
		return
	}
	q.ready = append(q.ready, d)
	q.run()
}

// run starts ready deliveries up to the limit.
func (q *queue) run() {
	for len(q.ready) > 0 && q.stats.InFlight < maxInFlight {
		d := q.ready[0]
		q.ready = q.ready[1:]
		q.stats.InFlight++
		trigger := q.trigger
		q.broker.work.Go(func() {
			next := q.broker.try(trigger, d)
			q.finish(d, next)
		})
	}
}

// finish records the outcome of an attempt and lets the next event of the key start.
func (q *queue) finish(d *delivery, o outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stats.InFlight--
	if d.first {
		d.first = false
		q.advance(d.key)
	}
	switch o.decision {
	case delivered:
		if d.dead == nil {
			q.stats.Delivered++
		}
		q.broker.held.Add(-1)
	case dropped:
		q.stats.Dropped++
		q.broker.held.Add(-1)
	case again:
		q.stats.Retried++
		q.retry(d, o.delay)
	case deadLetter:
		q.stats.DeadLettered++
		d.dead, d.tries = o.dead, 0
		q.again(d)
	}
	q.run()
}

func (q *queue) advance(key string) {
	l := q.lanes[key]
	if len(l) <= 1 {
		delete(q.lanes, key)
		return
	}
	q.lanes[key] = l[1:]
	q.ready = append(q.ready, l[1])
}

func (q *queue) snapshot() TriggerStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Name, s.Subscriber = q.trigger.Key(), q.trigger.Subscriber.String()
	s.Queued = len(q.ready)
	for _, l := range q.lanes {
		s.Queued += len(l) - 1
	}
	return s
}

// orderKey returns the key that orders an event: the partitionkey extension, or else the subject, or else a unique key.
func orderKey(e event.Event) string {
	value, _ := extension(e, "partitionkey")
	if key, ok := value.(string); ok && key != "" {
		return "p" + key
	}
	if subject := e.Subject(); subject != "" {
		return "s" + subject
	}
	return "i" + e.Source() + " " + e.ID()
}
