package ingest

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/dsse"
	"github.com/vitistack/stack/events/triggerauth"
	"github.com/vitistack/stack/gateway/internal/confirm"
	"github.com/vitistack/stack/gateway/internal/domainevents"
	"github.com/vitistack/stack/gateway/internal/heartbeat"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/metrics"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// Outcomes of events in metrics.
const (
	Processed    = "processed"
	duplicate    = "duplicate"
	ignored      = "ignored"
	failed       = "failed"
	refused      = "refused"
	deadLettered = "dead"
	// unauthenticated is a delivery without the token of an expected Trigger.
	unauthenticated = "unauthenticated"
)

// Deliveries receives what the Broker delivers to the gateway.
type Deliveries struct {
	// Verifier verifies the tokens of deliveries. It is nil if deliveries need no token.
	Verifier *triggerauth.Verifier
	Producer *domainevents.Producer
	Recorder *Recorder
	// Confirmer confirms the requests of functions, and Keys returns the keys that sign the answers of external systems.
	Confirmer *confirm.Confirmer
	Keys      func(context.Context) ([]ed25519.PublicKey, error)
	// Heartbeats records heartbeats.
	Heartbeats *heartbeat.Watcher
	Metrics    *metrics.Gateway
	// Timeout bounds the handling of one delivery.
	Timeout time.Duration
	Log     *slog.Logger
}

// Authenticate refuses a delivery without the token of an expected Trigger, before the body is read.
func (d *Deliveries) Authenticate(c *fiber.Ctx) error {
	if d.Verifier == nil {
		return nil
	}
	var authorization []string
	for _, value := range c.Request().Header.PeekAll(fiber.HeaderAuthorization) {
		authorization = append(authorization, string(value))
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	err := d.Verifier.Verify(ctx, authorization)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, triggerauth.ErrUnavailable):
		return problem.New(http.StatusServiceUnavailable, "the delivery is not authenticated: %s", err)
	}
	d.Metrics.Event(metrics.Other, unauthenticated, 1)
	c.Set(fiber.HeaderWWWAuthenticate, "Bearer")
	return problem.New(http.StatusUnauthorized, "the delivery is not authenticated: %s", err)
}

// Receive handles an event that the Broker delivers. It acknowledges the event once its result is in the history; until then the
// Broker redelivers it.
func (d *Deliveries) Receive(c *fiber.Ctx) error {
	in, err := readEvent(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	switch {
	case events.IsChange(in.Type()), in.Type() == events.TypeResync:
		return d.receiveChange(ctx, c, in)
	case in.Source() == domainevents.Source && strings.HasPrefix(in.Type(), "infrastructure."):
		// The gateway's own events come back if a Trigger selects them. They are in the history already.
		return d.finish(c, in, duplicate, nil)
	default:
		return d.receiveForeign(ctx, c, in)
	}
}

// ReceiveHeartbeat records a heartbeat. One that cannot be recorded is acknowledged too, because the next one follows soon.
func (d *Deliveries) ReceiveHeartbeat(c *fiber.Ctx) error {
	in, err := readEvent(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	lease, ok := d.Heartbeats.LeaseOf(*in)
	if !ok {
		return d.finish(c, in, ignored, nil)
	}
	if err := d.Heartbeats.Record(ctx, lease, time.Now()); err != nil {
		d.Log.Warn("Cannot record heartbeat", "lease", lease, "error", err.Error())
		return d.finish(c, in, failed, nil)
	}
	return d.finish(c, in, Processed, nil)
}

// receiveChange compares the object of an event with the history, and replies with the event that a change leads to.
func (d *Deliveries) receiveChange(ctx context.Context, c *fiber.Ctx, in *event.Event) error {
	ref, err := events.RefOf(*in)
	if err != nil {
		return d.finish(c, in, refused, problem.New(http.StatusUnprocessableEntity, "%s", err))
	}
	if !domainevents.HasEvents(inventory.Kind(ref.Kind)) {
		return d.finish(c, in, ignored, nil)
	}
	reply, err := d.Producer.Reconcile(ctx, inventory.Kind(ref.Kind), ref.Namespace, ref.Name, in.ID())
	if err != nil {
		return d.finish(c, in, failed, d.unrecorded(err))
	}
	if reply == nil {
		return d.finish(c, in, Processed, nil)
	}
	if err := writeEvent(c, *reply); err != nil {
		return d.finish(c, in, failed, err)
	}
	d.Metrics.Event(in.Type(), Processed, 1)
	return nil
}

// receiveForeign records an event of a conversation with an external system: the request of a function as the Kubernetes API confirms
// it, or an answer that the gateway has signed. Other events are ignored.
func (d *Deliveries) receiveForeign(ctx context.Context, c *fiber.Ctx, in *event.Event) error {
	var err error
	out := *in
	switch {
	case events.IsRequest(in.Type()):
		out, err = d.Confirmer.Confirm(ctx, *in)
	case events.IsAnswer(in.Type()):
		err = d.verify(ctx, *in)
	default:
		return d.finish(c, in, ignored, nil)
	}
	var refusal confirm.Refusal
	if errors.As(err, &refusal) {
		d.Log.Warn("Refused an event that the stack has not sent", "eventId", in.ID(), "type", in.Type(), "subject", in.Subject(), "reason", refusal.Error())
		return d.finish(c, in, refused, problem.New(http.StatusUnprocessableEntity, "event %s is not recorded: %s", in.ID(), refusal))
	}
	if err != nil {
		return d.finish(c, in, failed, problem.New(http.StatusServiceUnavailable, "event %s cannot be confirmed at present: %s: deliver it again later", in.ID(), err).WithRetryAfter(5))
	}
	written, err := d.Recorder.Record(ctx, &out)
	if err != nil {
		return d.finish(c, in, failed, d.unrecorded(err))
	}
	if !written {
		return d.finish(c, in, duplicate, nil)
	}
	return d.finish(c, in, Processed, nil)
}

// verify returns a confirm.Refusal for an answer that the gateway has not signed.
func (d *Deliveries) verify(ctx context.Context, in event.Event) error {
	keys, err := d.Keys(ctx)
	if err != nil {
		return err
	}
	if err := dsse.Verify(in, keys); err != nil {
		return confirm.Refuse("%s: send it to POST /api/v1/events of the gateway", err)
	}
	return nil
}

// unrecorded returns the problem that makes the Broker redeliver an event that could not be recorded.
func (d *Deliveries) unrecorded(err error) error {
	d.Log.Warn("Cannot record event, leaving it to the broker", "error", err.Error())
	return problem.New(http.StatusServiceUnavailable, "the history cannot be written at present: deliver the event again later").WithRetryAfter(5)
}

// finish counts an event by its outcome, and acknowledges it unless err is set.
func (d *Deliveries) finish(c *fiber.Ctx, in *event.Event, outcome string, err error) error {
	d.Metrics.Event(boundedType(in.Type()), outcome, 1)
	if err != nil {
		return err
	}
	c.Status(http.StatusAccepted)
	return nil
}

// DeclareCounters makes the counters of dead letters and of refused deliveries exist at 0.
func DeclareCounters(m *metrics.Gateway) {
	m.DeclareEvents(unauthenticated, metrics.Other)
	m.DeclareEvents(deadLettered, metrics.Other)
	m.DeclareEvents(deadLettered, events.Types...)
}

// boundedType returns a type as a label of a metric. Types of other systems share one label.
func boundedType(t string) string {
	if slices.Contains(events.Types, t) {
		return t
	}
	return metrics.Other
}
