package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/oidc"
	"github.com/vitistack/stack/gateway/internal/announce"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/ingest"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// What became of an event, as the metrics have it.
const (
	processed = "processed"
	duplicate = "duplicate"
	ignored   = "ignored"
	failed    = "failed"
	refused   = "refused"
	deadEvent = "dead"
	// unauthenticated is a delivery without a token of an expected Trigger.
	unauthenticated = "unauthenticated"
)

// authenticateDelivery refuses a delivery without a token of an expected Trigger, before the body is read.
func (g *gateway) authenticateDelivery(c *fiber.Ctx) error {
	if g.verifier == nil {
		return nil
	}
	var authorization []string
	for _, value := range c.Request().Header.PeekAll(fiber.HeaderAuthorization) {
		authorization = append(authorization, string(value))
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
	defer cancel()
	err := g.verifier.Verify(ctx, authorization)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, oidc.ErrUnavailable):
		return problem.New(http.StatusServiceUnavailable, "the delivery is not authenticated: %s", err)
	}
	g.metrics.event(g, others, unauthenticated, 1)
	c.Set(fiber.HeaderWWWAuthenticate, "Bearer")
	return problem.New(http.StatusUnauthorized, "the delivery is not authenticated: %s", err)
}

// receiveEvent takes an event that the Broker delivers. It is acknowledged when
// what it leads to is in the history; until then the Broker delivers it again.
func (g *gateway) receiveEvent(c *fiber.Ctx) error {
	in, err := readEvent(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
	defer cancel()
	switch {
	case events.IsChange(in.Type()), in.Type() == events.TypeResync:
		return g.receiveChange(ctx, c, in)
	case in.Source() == announce.Source && strings.HasPrefix(in.Type(), "infrastructure."):
		// Our own events come back where a Trigger lets them; they are recorded.
		return g.conclude(c, in, duplicate, nil)
	default:
		return g.receiveConversation(ctx, c, in)
	}
}

// receiveChange looks at the object that an event is about.
func (g *gateway) receiveChange(ctx context.Context, c *fiber.Ctx, in *event.Event) error {
	ref, err := events.RefOf(*in)
	if err != nil {
		return g.conclude(c, in, refused, problem.New(http.StatusUnprocessableEntity, "%s", err))
	}
	if !announce.Announces(inventory.Kind(ref.Kind)) {
		return g.conclude(c, in, ignored, nil)
	}
	reply, err := g.announcer.Look(ctx, inventory.Kind(ref.Kind), ref.Namespace, ref.Name, in.ID())
	if err != nil {
		return g.conclude(c, in, failed, g.unrecorded(err))
	}
	if reply == nil {
		return g.conclude(c, in, processed, nil)
	}
	if err := writeEvent(c, *reply); err != nil {
		return g.conclude(c, in, failed, err)
	}
	g.metrics.event(g, in.Type(), processed, 1)
	return nil
}

// receiveConversation keeps an event of a conversation with an external system.
func (g *gateway) receiveConversation(ctx context.Context, c *fiber.Ctx, in *event.Event) error {
	written, err := g.record(ctx, in)
	if err != nil {
		return g.conclude(c, in, failed, g.unrecorded(err))
	}
	if !written {
		return g.conclude(c, in, duplicate, nil)
	}
	return g.conclude(c, in, processed, nil)
}

// record keeps an event of somebody else, and tells of it if it is new. One that
// does not say when it can have happened gets the present time.
func (g *gateway) record(ctx context.Context, in *event.Event) (bool, error) {
	if now := time.Now(); !ingest.Plausible(in.Time(), now) {
		in.SetTime(now)
	}
	ref := subjectRef(in.Subject())
	kept := announce.Recorded(*in, ref.Namespace, "")
	kept.Kind, kept.Name = ref.Kind, ref.Name
	if ref.Kind == string(inventory.KindCluster) {
		kept.Cluster = ref.Name
	}
	written, err := g.history.Write(ctx, history.Record{
		Events:     []history.Event{kept},
		Deliveries: g.deliverer.Plan(*in, ref.Namespace, brokerName),
	})
	if err != nil || len(written.Events) == 0 {
		return false, err
	}
	g.tell(*in, ref.Namespace)
	return true, nil
}

// subjectRef reads an object's path in the API, which the subjects of events are.
func subjectRef(subject string) events.Ref {
	parts := strings.Split(strings.TrimPrefix(subject, "/apis/"), "/")
	kinds := map[string]inventory.Kind{}
	for _, k := range inventory.Kinds {
		kinds[strings.ToLower(string(k))+"s"] = k
	}
	switch {
	case len(parts) == 6 && parts[2] == "namespaces":
		return events.Ref{APIVersion: parts[0] + "/" + parts[1], Namespace: parts[3], Kind: string(kinds[parts[4]]), Name: parts[5]}
	case len(parts) == 4:
		return events.Ref{APIVersion: parts[0] + "/" + parts[1], Kind: string(kinds[parts[2]]), Name: parts[3]}
	default:
		return events.Ref{}
	}
}

// unrecorded is the answer while the history cannot be written. The Broker tries
// again.
func (g *gateway) unrecorded(err error) error {
	g.log.Warn("Cannot record event, leaving it to the broker", "component", "events", "error", err.Error())
	return problem.New(http.StatusServiceUnavailable, "the history cannot be written at present: deliver the event again later").WithRetryAfter(5)
}

// conclude counts an event and answers for it.
func (g *gateway) conclude(c *fiber.Ctx, in *event.Event, outcome string, err error) error {
	g.metrics.event(g, boundedType(in.Type()), outcome, 1)
	if err != nil {
		return err
	}
	c.Status(http.StatusAccepted)
	return nil
}

// boundedType is a type as a label of a metric: those that are not ours are
// counted together.
func boundedType(t string) string {
	if _, known := events.NewData(t); known || events.IsChange(t) || t == events.TypeResync || t == events.TypeResyncRequested {
		return t
	}
	return others
}

// receiveDeadLetter keeps an event that could not be delivered.
func (g *gateway) receiveDeadLetter(c *fiber.Ctx) error {
	in, err := readEvent(c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
	defer cancel()
	letter := deadLetter(in)
	written, err := g.history.Write(ctx, history.Record{DeadLetters: []history.DeadLetter{letter}})
	if err != nil {
		return g.conclude(c, in, failed, g.unrecorded(err))
	}
	if written.DeadLetters == 0 {
		return g.conclude(c, in, duplicate, nil)
	}
	g.tell(*in, letter.Namespace)
	return g.conclude(c, in, deadEvent, nil)
}

// deadLetter reads what the Broker says about an event that it gave up.
func deadLetter(in *event.Event) history.DeadLetter {
	text := func(name string) string {
		switch v := in.Extensions()[name].(type) {
		case string:
			return v
		case nil:
			return ""
		default:
			return fmt.Sprint(v)
		}
	}
	code, _ := strconv.Atoi(text("knativeerrorcode"))
	letter := history.DeadLetter{
		ID: in.ID(), Source: in.Source(), Destination: text("knativeerrordest"), Type: in.Type(), Subject: in.Subject(),
		Namespace: text("namespace"), Name: text("name"), Code: code, Error: decodeErrorData(text("knativeerrordata")),
		Time: time.Now(), Data: string(announce.Data(*in)),
	}
	if letter.Name == "" {
		ref := subjectRef(in.Subject())
		letter.Namespace, letter.Name = ref.Namespace, ref.Name
	}
	return letter
}

// readEvent reads a CloudEvent in binary or structured mode.
func readEvent(c *fiber.Ctx) (*event.Event, error) {
	header := http.Header{}
	c.Request().Header.VisitAll(func(name, value []byte) { header.Add(string(name), string(value)) })
	e, err := events.Read(context.Background(), header, io.NopCloser(bytes.NewReader(bytes.Clone(c.Request().Body()))))
	if errors.Is(err, binding.ErrUnknownEncoding) {
		return nil, problem.New(http.StatusUnsupportedMediaType, "send a CloudEvent of version 1.0 in binary or structured mode")
	}
	if err != nil {
		return nil, problem.New(http.StatusBadRequest, "the request is no valid CloudEvent: %s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return e, nil
}

// writeEvent replies with an event in structured mode.
func writeEvent(c *fiber.Ctx, e event.Event) error {
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode reply %s: %w", e.ID(), err)
	}
	c.Status(http.StatusOK)
	c.Context().Response.Header.SetContentType(event.ApplicationCloudEventsJSON)
	c.Context().Response.SetBodyRaw(body)
	return nil
}
