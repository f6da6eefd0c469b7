package domainevents

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

// Options are the parts and settings of a Producer.
type Options struct {
	Store   *inventory.Store
	History *history.Store
	// Synced reports whether all objects of a kind are in the store, so that a missing object is deleted.
	Synced func(inventory.Kind) bool
	// Version reads the resource version of the object with a UID from the API server, and is empty if that does not exist. The store
	// may be behind another replica, which has recorded what the store does not have yet.
	Version func(ctx context.Context, kind inventory.Kind, namespace, name, uid string) (string, error)
	// Deliveries returns the deliveries of an event to endpoints. direct reports that the Broker gets the event as a reply.
	Deliveries func(e event.Event, namespace string, direct bool) []history.Delivery
	// Show is called once for each recorded event.
	Show func(e event.Event, namespace string)
	// BrokerDelay is the time for which a change that the gateway has seen waits for the Broker to deliver it, so that its event can be
	// a reply.
	BrokerDelay time.Duration
	// Timeout bounds each attempt to record an object, because a connection to a database that has vanished hangs for a quarter of an hour. It
	// has to be longer than the flush interval of History.
	Timeout time.Duration
	Log     *slog.Logger
}

// Producer records the domain events of changed objects, and shows and delivers each event once.
type Producer struct {
	Options
	queue workqueue.TypedRateLimitingInterface[subject]
	seed  maphash.Seed

	mu sync.Mutex
	// recorded maps each existing object to the digest of its last recorded version, so that an unchanged object needs no query.
	recorded map[string]uint64
}

// subject is an object to reconcile.
type subject struct {
	kind            inventory.Kind
	id              string
	namespace, name string
}

// New returns a Producer. Call Run to start it.
func New(o Options) *Producer {
	return &Producer{
		Options: o, seed: maphash.MakeSeed(), recorded: map[string]uint64{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[subject](200*time.Millisecond, 30*time.Second)),
	}
}

// kindOf maps the topics whose changes have domain events to their kinds.
var kindOf = map[inventory.Topic]inventory.Kind{
	inventory.TopicMachines: inventory.KindMachine, inventory.TopicClusters: inventory.KindCluster,
	inventory.TopicAddresses: inventory.KindConfiguration, inventory.TopicOperators: KindOperator,
}

// collection returns the current items of a kind with events, or none of another kind.
func (p *Producer) collection(kind inventory.Kind) *inventory.Collection {
	for topic, k := range kindOf {
		if k == kind {
			return p.Store.Current().Collection(topic)
		}
	}
	return &inventory.Collection{}
}

// HasEvents reports whether changes of a kind lead to domain events.
func HasEvents(kind inventory.Kind) bool {
	return kind == inventory.KindMachine || kind == inventory.KindCluster || kind == inventory.KindConfiguration
}

// Changed queues the objects that have changed between two snapshots.
func (p *Producer) Changed(changes []inventory.Change) {
	for _, change := range changes {
		kind, ok := kindOf[change.Topic]
		if !ok {
			continue
		}
		for _, items := range [][]*inventory.Item{change.Upserts, change.Removes} {
			for _, i := range items {
				p.queue.AddAfter(subject{kind, i.ID, i.Namespace, i.Name}, p.BrokerDelay)
			}
		}
	}
}

// workers reconcile objects at the same time. They mostly wait for the database, which writes their records together.
const workers = 64

// resyncPeriod is the time between two comparisons of all objects with the history.
const resyncPeriod = 10 * time.Minute

// Run reconciles changed objects until ctx ends. It begins when begin is closed, with all objects.
func (p *Producer) Run(ctx context.Context, begin <-chan struct{}) {
	defer p.queue.ShutDown()
	for _, wait := range []<-chan struct{}{begin, p.History.Migrated()} {
		select {
		case <-ctx.Done():
			return
		case <-wait:
		}
	}
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { p.work(ctx) })
	}
	ticker := time.NewTicker(resyncPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		for _, kind := range kindOf {
			if err := p.resync(ctx, kind); err != nil && ctx.Err() == nil {
				p.Log.Warn("Cannot compare objects with the history", "kind", kind, "error", err.Error())
			}
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	p.queue.ShutDown()
	running.Wait()
}

func (p *Producer) work(ctx context.Context) {
	for {
		s, stop := p.queue.Get()
		if stop {
			return
		}
		limited, cancel := context.WithTimeout(ctx, p.Timeout)
		_, err := p.reconcile(limited, s, "")
		cancel()
		p.queue.Done(s)
		if err == nil || ctx.Err() != nil {
			p.queue.Forget(s)
			continue
		}
		p.Log.Debug("Cannot record an event, retrying", "kind", s.kind, "namespace", s.namespace, "name", s.name, "error", err.Error())
		p.queue.AddRateLimited(s)
	}
}

// resync compares all objects of a kind with the history, and queues objects that differ.
func (p *Producer) resync(ctx context.Context, kind inventory.Kind) error {
	rows, err := p.History.KnownOf(ctx, string(kind))
	if err != nil {
		return err
	}
	known := make(map[string]history.Known, len(rows))
	for _, k := range rows {
		known[k.ID] = k
	}
	for _, i := range p.collection(kind).Items {
		s := subject{kind, i.ID, i.Namespace, i.Name}
		v, err := p.decide(s, i, known[recordID(s)])
		if err != nil {
			return err
		}
		if v.changed {
			p.queue.AddAfter(s, p.BrokerDelay)
		} else {
			p.markRecorded(s, i)
		}
		delete(known, recordID(s))
	}
	for _, k := range known {
		if kind != KindOperator {
			p.queue.Add(subject{kind, k.ID, k.Namespace, k.Name})
		}
	}
	return nil
}

// Reconcile reconciles the object that an event of the Broker is about, and returns the domain event to reply, or nil. cause is the
// identifier of the Broker's event; a repetition gets the same reply.
func (p *Producer) Reconcile(ctx context.Context, kind inventory.Kind, namespace, name, cause string) (*event.Event, error) {
	subjects, err := p.findSubjects(ctx, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	var reply *event.Event
	for _, s := range subjects {
		if reply != nil {
			// A reply is one event. The queue handles the others.
			p.queue.Add(s)
			continue
		}
		made, err := p.reconcile(ctx, s, cause)
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
	recorded, err := p.History.CausedBy(ctx, cause)
	if err != nil || len(recorded) == 0 {
		return nil, err
	}
	again := Restore(recorded[0])
	return &again, nil
}

// findSubjects returns the objects of a name to reconcile: the existing object unless it is recorded, or else the recorded objects
// that had the name before.
func (p *Producer) findSubjects(ctx context.Context, kind inventory.Kind, namespace, name string) ([]subject, error) {
	var subjects []subject
	if i := p.collection(kind).FindNamed(namespace, name); i != nil {
		s := subject{kind, i.ID, namespace, name}
		if !p.isRecorded(s, i) {
			subjects = append(subjects, s)
		}
		return subjects, nil
	}
	known, err := p.History.KnownNamed(ctx, history.Object{Kind: string(kind), Namespace: namespace, Name: name})
	for _, k := range known {
		subjects = append(subjects, subject{kind, k.ID, namespace, name})
	}
	return subjects, err
}

// attempts bounds the retries for an object that other replicas record at the same time.
const attempts = 5

// reconcile records what has happened to one object since it was last recorded, and returns the new events.
func (p *Producer) reconcile(ctx context.Context, s subject, cause string) ([]event.Event, error) {
	for range attempts {
		now := p.collection(s.kind).Find(s.id)
		if now == nil && !p.knowsDeletions(s.kind) {
			return nil, nil
		}
		if now != nil && p.isRecorded(s, now) {
			return nil, nil
		}
		known, err := p.History.Known(ctx, recordID(s))
		if err != nil {
			return nil, err
		}
		if behind, err := p.isBehind(ctx, s, now, known); err != nil || behind {
			return nil, err
		}
		v, err := p.decide(s, now, known)
		if err != nil {
			return nil, err
		}
		if !v.changed {
			p.markRecorded(s, now)
			return nil, nil
		}
		made, err := p.record(ctx, s, known, v, cause)
		if errors.Is(err, history.ErrConflict) {
			continue
		}
		if err == nil {
			p.markRecorded(s, now)
		}
		return made, err
	}
	return nil, fmt.Errorf("record %s %s/%s: %w", s.kind, s.namespace, s.name, history.ErrConflict)
}

// isBehind reports whether the store is behind the record of an object: the object that it lacks exists, or it has an older version
// than the record and the API server. After a restore of the API server's etcd, the older version is the current one.
func (p *Producer) isBehind(ctx context.Context, s subject, now *inventory.Item, known history.Known) (bool, error) {
	if s.kind == KindOperator || known.Version == 0 {
		return false, nil
	}
	stored := ""
	if now != nil {
		stored = now.Object.ResourceVersion
		var last version
		if err := read(known.Document, &last); err != nil || !isOlder(stored, last.ResourceVersion) {
			return false, err
		}
	}
	current, err := p.Version(ctx, s.kind, s.namespace, s.name, s.id)
	return current != stored, err
}

// knowsDeletions reports whether an object of the kind that is not in the store is deleted.
func (p *Producer) knowsDeletions(kind inventory.Kind) bool {
	return kind != KindOperator && p.Synced(kind)
}

// recordID returns the identifier of an object in the history.
func recordID(s subject) string {
	if s.kind == KindOperator {
		return "operator/" + s.id
	}
	return s.id
}

func (p *Producer) decide(s subject, now *inventory.Item, known history.Known) (decision, error) {
	if s.kind == KindOperator {
		return decideOperator(now, known.Document, time.Now())
	}
	o := observed{id: s.id, now: now, known: known.Document, namespace: s.namespace, name: s.name}
	if now != nil {
		// Kubernetes records creation times in seconds.
		o.isOld = now.Created.Before(p.History.Baseline().Truncate(time.Second))
	}
	return decide(s.kind, o)
}

// isRecorded reports whether everything has been recorded of the object as it is.
func (p *Producer) isRecorded(s subject, now *inventory.Item) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum, ok := p.recorded[recordID(s)]
	return ok && sum == p.digest(now)
}

// markRecorded remembers that the current version of an object is recorded. now is nil for a deleted object.
func (p *Producer) markRecorded(s subject, now *inventory.Item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now == nil {
		delete(p.recorded, recordID(s))
		return
	}
	p.recorded[recordID(s)] = p.digest(now)
}

// digest identifies what a decision depends on. An operator has no object, and the JSON of its item contains times, which lead to no
// event.
func (p *Producer) digest(i *inventory.Item) uint64 {
	if i.Object == nil {
		return maphash.String(p.seed, i.Status)
	}
	return maphash.String(p.seed, i.Object.ResourceVersion)
}
