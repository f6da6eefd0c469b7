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

// Resolver returns the URL of a destination. A reference without a namespace is in the given one.
type Resolver func(destination duckv1.Destination, namespace string) (*url.URL, error)

// Trigger is a Knative Trigger that Compile has prepared for deliveries.
type Trigger struct {
	Namespace, Name string
	Subscriber      *url.URL

	filter     eventfilter.Filter
	deadLetter *url.URL // nil: an undeliverable event is dropped
	format     duckeventing.FormatType
	retries    int
	backoff    kncloudevents.Backoff
	timeout    time.Duration // of one request; 0 is none

	// The audiences of the tokens of deliveries and dead letters. Empty: they have none.
	audience, deadLetterAudience string
	account                      types.NamespacedName
	tokens                       Tokens
}

// Tokens issues tokens of ServiceAccounts, as Knative's OIDCTokenProvider does.
type Tokens interface {
	GetJWT(account types.NamespacedName, audience string) (string, error)
}

// WithIdentity makes deliveries carry a token of a ServiceAccount in the Trigger's namespace, as in Knative with authentication-oidc, if the destination
// has an audience.
func (t Trigger) WithIdentity(tokens Tokens, account string) Trigger {
	t.tokens, t.account = tokens, types.NamespacedName{Namespace: t.Namespace, Name: account}
	return t
}

// Compile prepares a Trigger for deliveries. As in Knative, the Trigger's delivery spec replaces the whole spec of the Broker, except that a Trigger
// without a dead letter sink has that of the Broker. It returns an error, in Knative's words, about anything that Knative's admission webhook rejects,
// about filters that Knative would ignore, so that every event passes, and about destinations that resolve does not find. It does not change the Knative
// object.
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

// Key returns the Trigger's namespace and name.
func (t Trigger) Key() string { return t.Namespace + "/" + t.Name }

// matches reports whether the event passes the filters. Upstream's CESQL filter panics on an expression whose result is not a boolean, which validation
// cannot detect. Such an expression matches nothing.
func (t Trigger) matches(ctx context.Context, e event.Event) (matches bool) {
	defer func() {
		if recover() != nil {
			matches = false
		}
	}()
	return t.filter.Filter(ctx, e) != eventfilter.FailFilter
}

// defaultFeatures are the features of a new installation of Knative.
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
