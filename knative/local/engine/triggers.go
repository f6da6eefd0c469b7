package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/eventing/pkg/auth"

	"github.com/vitistack/stack/knative/local/broker"
)

// brokerSet has the running brokers and their Triggers, as the API server has them, including Triggers that are applied later.
type brokerSet struct {
	cluster   *cluster
	addresses *addresses
	printer   *printer
	objects   []*eventingv1.Broker
	running   map[string]*broker.Broker // by namespace/name
	informer  cache.SharedIndexInformer
	changed   chan struct{}
	faults    map[string]string // by Trigger, so that each is printed once
	tokens    broker.Tokens     // nil: deliveries have none
}

func newBrokerSet(c *cluster, a *addresses, p *printer, objects []*eventingv1.Broker, running map[string]*broker.Broker, tokens broker.Tokens) (*brokerSet, error) {
	b := &brokerSet{
		cluster: c, addresses: a, printer: p, objects: objects, running: running,
		informer: dynamicinformer.NewDynamicSharedInformerFactory(c.dynamic, 0).ForResource(triggers).Informer(),
		changed:  make(chan struct{}, 1), faults: map[string]string{}, tokens: tokens,
	}
	notice := func() {
		select {
		case b.changed <- struct{}{}:
		default: // a reconcile is pending
		}
	}
	_, err := b.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notice() },
		UpdateFunc: func(before, now any) {
			// A change of the status alone is the engine's own.
			if before.(*unstructured.Unstructured).GetGeneration() != now.(*unstructured.Unstructured).GetGeneration() {
				notice()
			}
		},
		DeleteFunc: func(any) { notice() },
	})
	if err != nil {
		return nil, fmt.Errorf("watch Triggers: %w", err)
	}
	return b, nil
}

// start returns when the existing Triggers are served. It follows their changes until background ends.
func (b *brokerSet) start(ctx, background context.Context) error {
	go b.informer.Run(background.Done())
	if !cache.WaitForCacheSync(ctx.Done(), b.informer.HasSynced) {
		return fmt.Errorf("list Triggers: %w", context.Cause(ctx))
	}
	if err := b.update(ctx); err != nil {
		return err
	}
	go b.run(background)
	return nil
}

// Delays before an update is repeated that failed, as while the API server restarts.
const (
	firstUpdateDelay = 250 * time.Millisecond
	lastUpdateDelay  = 10 * time.Second
)

// run updates after each change. It prints an error once, and repeats the update until it succeeds.
func (b *brokerSet) run(ctx context.Context) {
	var again <-chan time.Time
	delay, printed := firstUpdateDelay, ""
	for {
		select {
		case <-b.changed:
		case <-again:
		case <-ctx.Done():
			return
		}
		err := b.update(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			again, delay, printed = nil, firstUpdateDelay, ""
			continue
		}
		if text := err.Error(); text != printed {
			printed = text
			b.printer.event("Triggers: %v; it is tried again", err)
		}
		again, delay = time.After(delay), min(2*delay, lastUpdateDelay)
	}
}

// update updates the Triggers of the brokers, and writes each Trigger's status.
func (b *brokerSet) update(ctx context.Context) error {
	compiled := map[string][]broker.Trigger{}
	var errs []error
	for _, object := range b.informer.GetStore().List() {
		trigger := &eventingv1.Trigger{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, trigger); err != nil {
			errs = append(errs, fmt.Errorf("decode a Trigger: %w", err))
			continue
		}
		t, err := b.compile(trigger)
		if err == nil {
			t, err = b.identify(ctx, trigger, t)
		}
		key := trigger.Namespace + "/" + trigger.Spec.Broker
		if err == nil {
			compiled[key] = append(compiled[key], t)
		}
		errs = append(errs, b.report(ctx, trigger, t, err))
	}
	for key, running := range b.running {
		list := compiled[key]
		slices.SortFunc(list, func(x, y broker.Trigger) int { return strings.Compare(x.Key(), y.Key()) })
		running.SetTriggers(list)
	}
	return errors.Join(errs...)
}

func (b *brokerSet) compile(trigger *eventingv1.Trigger) (broker.Trigger, error) {
	for _, object := range b.objects {
		if object.Namespace == trigger.Namespace && object.Name == trigger.Spec.Broker {
			return broker.Compile(trigger, object, b.addresses.resolve)
		}
	}
	return broker.Trigger{}, fmt.Errorf("start Trigger %s/%s: there is no Broker %s in its namespace", trigger.Namespace, trigger.Name, trigger.Spec.Broker)
}

// identify creates the ServiceAccount of a Trigger as Knative does. Its token authenticates the
// Trigger's deliveries.
func (b *brokerSet) identify(ctx context.Context, trigger *eventingv1.Trigger, t broker.Trigger) (broker.Trigger, error) {
	if b.tokens == nil {
		return t, nil
	}
	account := auth.GetOIDCServiceAccountForResource(eventingv1.SchemeGroupVersion.WithKind("Trigger"), trigger.ObjectMeta)
	_, err := b.cluster.typed.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return t, fmt.Errorf("create the ServiceAccount of Trigger %s/%s: %w", trigger.Namespace, trigger.Name, err)
	}
	return t.WithIdentity(b.tokens, account.Name), nil
}

func (b *brokerSet) report(ctx context.Context, trigger *eventingv1.Trigger, t broker.Trigger, fault error) error {
	key := trigger.Namespace + "/" + trigger.Name
	if fault != nil {
		if b.faults[key] != fault.Error() {
			b.faults[key] = fault.Error()
			b.printer.event("%v", fault)
		}
		return b.cluster.setStatus(ctx, triggers, trigger.Namespace, trigger.Name, nil, notReady("Refused", fault))
	}
	delete(b.faults, key)
	fields := map[string]any{"subscriberUri": t.Subscriber.String()}
	return b.cluster.setStatus(ctx, triggers, trigger.Namespace, trigger.Name, fields, ready("BrokerReady", "SubscriberResolved", "Subscribed"))
}
