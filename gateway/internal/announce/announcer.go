package announce

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/client-go/util/workqueue"

	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Source is the source of the domain events.
const Source = "/gateway"

// KindOperator stands for an operator, which is no Kubernetes object.
const KindOperator inventory.Kind = "Operator"

// Options are what an Announcer works with.
type Options struct {
	Store   *inventory.Store
	History *history.Store
	// Synced tells whether all objects of a kind are in the store, so that one that
	// is not there is gone.
	Synced func(inventory.Kind) bool
	// Deliveries are those that an event leads to. direct tells that the event is
	// replied to the broker.
	Deliveries func(e event.Event, namespace string, direct bool) []history.Delivery
	// Tell is called once for each event that has been recorded.
	Tell func(e event.Event, namespace string)
	// Patience is how long a change waits for the broker to tell of it, before the
	// gateway acts on having seen it itself.
	Patience time.Duration
	Log      *slog.Logger
}

// Announcer finds out what has happened, and records and tells it once.
type Announcer struct {
	Options
	queue workqueue.TypedRateLimitingInterface[subject]
	seed  maphash.Seed

	mu sync.Mutex
	// seen has, for each object that is there, what was decided last about which
	// version of it, so that looking again costs nothing.
	seen map[string]uint64
}

// subject is an object to look at.
type subject struct {
	kind            inventory.Kind
	id              string
	namespace, name string
}

// New makes an announcer.
func New(o Options) *Announcer {
	return &Announcer{
		Options: o, seed: maphash.MakeSeed(), seen: map[string]uint64{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[subject](200*time.Millisecond, 30*time.Second)),
	}
}

// kindOf are the kinds whose changes are announced, by topic.
var kindOf = map[inventory.Topic]inventory.Kind{
	inventory.TopicMachines: inventory.KindMachine, inventory.TopicClusters: inventory.KindCluster,
	inventory.TopicAddresses: inventory.KindAddress, inventory.TopicOperators: KindOperator,
}

// Announces tells whether changes of a kind lead to domain events.
func Announces(kind inventory.Kind) bool {
	return kind == inventory.KindMachine || kind == inventory.KindCluster || kind == inventory.KindAddress
}

// Changed takes note of what has changed between two snapshots.
func (a *Announcer) Changed(changes []inventory.Change) {
	for _, change := range changes {
		kind, ok := kindOf[change.Topic]
		if !ok {
			continue
		}
		for _, items := range [][]*inventory.Item{change.Upserts, change.Removes} {
			for _, i := range items {
				a.queue.AddAfter(subject{kind, i.ID, i.Namespace, i.Name}, a.Patience)
			}
		}
	}
}

// workers look at objects at the same time. Most of the time they wait for the
// database, which writes what they have for it together.
const workers = 64

// sweepPeriod is between two looks at everything.
const sweepPeriod = 10 * time.Minute

// Run looks at what has changed until ctx ends. It begins when begin is closed,
// with a look at everything.
func (a *Announcer) Run(ctx context.Context, begin <-chan struct{}) {
	defer a.queue.ShutDown()
	for _, wait := range []<-chan struct{}{begin, a.History.Migrated()} {
		select {
		case <-ctx.Done():
			return
		case <-wait:
		}
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { a.work(ctx) })
	}
	ticker := time.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		for _, kind := range kindOf {
			if err := a.sweep(ctx, kind); err != nil && ctx.Err() == nil {
				a.Log.Warn("Cannot compare with what is recorded", "kind", kind, "error", err.Error())
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	a.queue.ShutDown()
	running.Wait()
}

func (a *Announcer) work(ctx context.Context) {
	for {
		s, stop := a.queue.Get()
		if stop {
			return
		}
		_, err := a.examine(ctx, s, "")
		a.queue.Done(s)
		if err == nil || ctx.Err() != nil {
			a.queue.Forget(s)
			continue
		}
		a.Log.Debug("Cannot record, trying again", "kind", s.kind, "namespace", s.namespace, "name", s.name, "error", err.Error())
		a.queue.AddRateLimited(s)
	}
}

// sweep compares all objects of a kind with what is recorded, and has those
// looked at that differ.
func (a *Announcer) sweep(ctx context.Context, kind inventory.Kind) error {
	rows, err := a.History.KnownOf(ctx, string(kind))
	if err != nil {
		return err
	}
	known := make(map[string]history.Known, len(rows))
	for _, k := range rows {
		known[k.ID] = k
	}
	for topic, k := range kindOf {
		if k != kind {
			continue
		}
		for _, i := range a.Store.Current().Collection(topic).Items {
			s := subject{kind, i.ID, i.Namespace, i.Name}
			v, err := a.decide(s, i, known[recordID(s)])
			if err != nil {
				return err
			}
			if v.changed {
				a.queue.AddAfter(s, a.Patience)
			} else {
				a.remember(s, i)
			}
			delete(known, recordID(s))
		}
	}
	for _, k := range known {
		if kind != KindOperator {
			a.queue.Add(subject{kind, k.ID, k.Namespace, k.Name})
		}
	}
	return nil
}

// Look looks at the object that an event of the broker is about, and returns the
// domain event to reply, or nil. cause is the event's identifier; the same one
// again is replied to in the same way.
func (a *Announcer) Look(ctx context.Context, kind inventory.Kind, namespace, name, cause string) (*event.Event, error) {
	subjects, err := a.named(ctx, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	var reply *event.Event
	for _, s := range subjects {
		if reply != nil {
			// A reply is one event; what else there is goes its own way.
			a.queue.Add(s)
			continue
		}
		made, err := a.examine(ctx, s, cause)
		if err != nil {
			return nil, err
		}
		if len(made) > 0 {
			reply = &made[0]
		}
	}
	if reply != nil {
		return reply, nil
	}
	recorded, err := a.History.CausedBy(ctx, cause)
	if err != nil || len(recorded) == 0 {
		return nil, err
	}
	again := Rebuild(recorded[0])
	return &again, nil
}

// named finds the objects of a name: the one that is there, unless there is
// nothing new to say of it, and those of before it that are recorded.
func (a *Announcer) named(ctx context.Context, kind inventory.Kind, namespace, name string) ([]subject, error) {
	var subjects []subject
	for topic, k := range kindOf {
		if k != kind {
			continue
		}
		if i := a.Store.Current().Collection(topic).FindNamed(namespace, name); i != nil {
			s := subject{kind, i.ID, namespace, name}
			if !a.told(s, i) {
				subjects = append(subjects, s)
			}
			return subjects, nil
		}
	}
	known, err := a.History.KnownNamed(ctx, history.Object{Kind: string(kind), Namespace: namespace, Name: name})
	for _, k := range known {
		subjects = append(subjects, subject{kind, k.ID, namespace, name})
	}
	return subjects, err
}

// attempts bound how often an object is decided about that others record too.
const attempts = 5

// examine decides about one object, and records and tells what has happened to
// it. It returns the events that are new.
func (a *Announcer) examine(ctx context.Context, s subject, cause string) ([]event.Event, error) {
	for range attempts {
		now := a.find(s)
		if now == nil && !a.present(s.kind) {
			return nil, nil
		}
		if now != nil && a.told(s, now) {
			return nil, nil
		}
		known, err := a.History.Known(ctx, recordID(s))
		if err != nil {
			return nil, err
		}
		v, err := a.decide(s, now, known)
		if err != nil {
			return nil, err
		}
		if !v.changed {
			a.remember(s, now)
			return nil, nil
		}
		made, err := a.record(ctx, s, known, v, cause)
		if errors.Is(err, history.ErrConflict) {
			continue
		}
		if err == nil {
			a.remember(s, now)
		}
		return made, err
	}
	return nil, fmt.Errorf("record %s %s/%s: %w", s.kind, s.namespace, s.name, history.ErrConflict)
}

// present tells whether an object of the kind that is not in the store is gone.
func (a *Announcer) present(kind inventory.Kind) bool {
	return kind != KindOperator && a.Synced(kind)
}

func (a *Announcer) find(s subject) *inventory.Item {
	for topic, kind := range kindOf {
		if kind == s.kind {
			return a.Store.Current().Collection(topic).Find(s.id)
		}
	}
	return nil
}

// recordID is what an object is recorded under.
func recordID(s subject) string {
	if s.kind == KindOperator {
		return "operator/" + s.id
	}
	return s.id
}

func (a *Announcer) decide(s subject, now *inventory.Item, known history.Known) (verdict, error) {
	if s.kind == KindOperator {
		return decideOperator(now, known.Document, time.Now())
	}
	o := observed{id: s.id, now: now, known: known.Document, namespace: s.namespace, name: s.name}
	if now != nil {
		// Kubernetes knows the second in which an object was created.
		o.old = now.Created.Before(a.History.Baseline().Truncate(time.Second))
	}
	return decide(s.kind, o)
}

// told tells whether everything has been told of the object as it is.
func (a *Announcer) told(s subject, now *inventory.Item) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum, ok := a.seen[recordID(s)]
	return ok && sum == a.digest(now)
}

// remember takes note that everything has been told of an object as it is; nil
// means that it is gone.
func (a *Announcer) remember(s subject, now *inventory.Item) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now == nil {
		delete(a.seen, recordID(s))
		return
	}
	a.seen[recordID(s)] = a.digest(now)
}

// digest stands for what a decision depends on. An operator has no object, and
// its item's JSON has times in it that are no news.
func (a *Announcer) digest(i *inventory.Item) uint64 {
	if i.Object == nil {
		return maphash.String(a.seed, i.Status)
	}
	return maphash.String(a.seed, i.Object.ResourceVersion)
}
