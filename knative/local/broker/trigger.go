package broker

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	duckeventing "knative.dev/eventing/pkg/apis/duck/v1"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/eventing/pkg/apis/feature"
	"knative.dev/eventing/pkg/eventfilter"
	"knative.dev/eventing/pkg/kncloudevents"
	duckv1 "knative.dev/pkg/apis/duck/v1"
)

// Resolver returns the URL of a destination; a reference without a namespace is to an object in the given one.
type Resolver func(destination duckv1.Destination, namespace string) (*url.URL, error)

// Trigger is a Knative Trigger made ready for deliveries by Compile.
type Trigger struct {
	Namespace, Name string
	Subscriber      *url.URL

	filter     eventfilter.Filter
	deadLetter *url.URL // nil: an event that cannot be delivered is dropped
	format     duckeventing.FormatType
	retries    int
	backoff    kncloudevents.Backoff
	timeout    time.Duration // of one request; 0 is none

	// What the token of a delivery and of a dead letter is for; empty: they have none.
	audience, deadLetterAudience string
	account                      types.NamespacedName
	tokens                       Tokens
}

// Tokens gives tokens of ServiceAccounts, as Knative's OIDCTokenProvider does.
type Tokens interface {
	GetJWT(account types.NamespacedName, audience string) (string, error)
}

// WithIdentity has deliveries carry a token of a ServiceAccount of the Trigger's namespace, as Knative's do with
// authentication-oidc, where the destination names an audience.
func (t Trigger) WithIdentity(tokens Tokens, account string) Trigger {
	t.tokens, t.account = tokens, types.NamespacedName{Namespace: t.Namespace, Name: account}
	return t
}

// Compile makes a Trigger ready. As in Knative, the Trigger's delivery spec replaces the Broker's whole, except that a
// Trigger without a dead letter sink has the Broker's. It fails on what Knative's admission webhook would refuse, in
// its words, on filters that Knative would leave out, which lets everything pass, and on what resolve does not find.
// The Knative object is not changed.
func Compile(trigger *eventingv1.Trigger, broker *eventingv1.Broker, resolve Resolver) (Trigger, error) {
	ctx, err := defaultFeatures()
	if err != nil {
		return Trigger{}, err
	}
	trigger = trigger.DeepCopy()
	trigger.SetDefaults(ctx)
	if err := trigger.Validate(ctx); err != nil {
		return Trigger{}, fmt.Errorf("validate Trigger %s/%s: %w", trigger.Namespace, trigger.Name, err)
	}
	compiled := Trigger{Namespace: trigger.Namespace, Name: trigger.Name}
	if compiled.filter, err = newFilter(trigger.Spec); err != nil {
		return Trigger{}, fmt.Errorf("read the filters of Trigger %s/%s: %w", trigger.Namespace, trigger.Name, err)
	}
	if compiled.Subscriber, err = resolve(trigger.Spec.Subscriber, trigger.Namespace); err != nil {
		return Trigger{}, fmt.Errorf("resolve the subscriber of Trigger %s/%s: %w", trigger.Namespace, trigger.Name, err)
	}
	compiled.audience = ptr.Deref(trigger.Spec.Subscriber.Audience, "")
	delivery, sink := deliverySpec(trigger, broker)
	if sink != nil {
		compiled.deadLetterAudience = ptr.Deref(sink.Audience, "")
		if compiled.deadLetter, err = resolve(*sink, trigger.Namespace); err != nil {
			return Trigger{}, fmt.Errorf("resolve the dead letter sink of Trigger %s/%s: %w", trigger.Namespace, trigger.Name, err)
		}
	}
	retry, err := kncloudevents.RetryConfigFromDeliverySpec(delivery)
	if err != nil {
		return Trigger{}, fmt.Errorf("read the delivery spec of Trigger %s/%s: %w", trigger.Namespace, trigger.Name, err)
	}
	compiled.retries, compiled.backoff, compiled.timeout = retry.RetryMax, retry.Backoff, retry.RequestTimeout
	if delivery.Format != nil {
		compiled.format = *delivery.Format
	}
	return compiled, nil
}

// Key is the Trigger's namespace and name.
func (t Trigger) Key() string { return t.Namespace + "/" + t.Name }

// matches says whether the filters let the event pass. Upstream's CESQL filter panics on an expression whose result is
// not a boolean, which validation cannot see; such an expression matches nothing.
func (t Trigger) matches(ctx context.Context, e event.Event) (matches bool) {
	defer func() {
		if recover() != nil {
			matches = false
		}
	}()
	return t.filter.Filter(ctx, e) != eventfilter.FailFilter
}

// defaultFeatures is what an installation of Knative allows without further configuration.
func defaultFeatures() (context.Context, error) {
	flags, err := feature.NewFlagsConfigFromMap(nil)
	if err != nil {
		return nil, fmt.Errorf("read the default features of Knative: %w", err)
	}
	return feature.ToContext(context.Background(), flags), nil
}

func deliverySpec(trigger *eventingv1.Trigger, broker *eventingv1.Broker) (duckeventing.DeliverySpec, *duckv1.Destination) {
	var fallback duckeventing.DeliverySpec
	if broker.Spec.Delivery != nil {
		fallback = *broker.Spec.Delivery.DeepCopy()
	}
	if trigger.Spec.Delivery == nil {
		return fallback, fallback.DeadLetterSink
	}
	if sink := trigger.Spec.Delivery.DeadLetterSink; sink != nil {
		return *trigger.Spec.Delivery, sink
	}
	return *trigger.Spec.Delivery, fallback.DeadLetterSink
}
