package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/gateway/internal/ingest"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// secrets are those of external systems at present.
type secrets struct {
	all atomic.Pointer[[]standardwebhooks.Secret]
}

func (s *secrets) load(configured []string, file []byte) error {
	var all []standardwebhooks.Secret
	for i, text := range append(append([]string(nil), configured...), lines(file)...) {
		secret, err := standardwebhooks.ParseSecret(text)
		if err != nil {
			return fmt.Errorf("secret %d: %w", i+1, err)
		}
		all = append(all, secret)
	}
	s.all.Store(&all)
	return nil
}

// signed tells whether a request is signed by somebody who knows a secret.
func (s *secrets) signed(c *fiber.Ctx) bool {
	id, at, signature := c.Get(standardwebhooks.HeaderID), c.Get(standardwebhooks.HeaderTimestamp), c.Get(standardwebhooks.HeaderSignature)
	right := false
	for _, secret := range *s.all.Load() {
		right = secret.Verify(id, at, signature, c.Request().Body(), time.Now()) == nil || right
	}
	return right
}

// acceptedJSON says what became of the events of a request.
type acceptedJSON struct {
	// Accepted are on their way, Duplicates were taken before.
	Accepted   int `json:"accepted"`
	Duplicates int `json:"duplicates"`
}

// ingestEvents takes events of external systems, and passes them on to the Broker.
// Either all events of a batch are fit to be taken, or none is.
func (g *gateway) ingestEvents(c *fiber.Ctx) error {
	who, err := g.mayIngest(c)
	if err != nil {
		return err
	}
	if len(c.Request().Body()) > g.config.Ingest.MaxBytes {
		return problem.New(http.StatusRequestEntityTooLarge, "the events have %d bytes: send at most %d", len(c.Request().Body()), g.config.Ingest.MaxBytes)
	}
	all, batch, err := eventsOf(c)
	if err != nil {
		return err
	}
	if err := g.checkEvents(all, batch); err != nil {
		return err
	}
	for _, e := range all {
		if about := subjectRef(e.Subject()).Namespace; !decideVisibility(who, nil, nil).includes(about) {
			return problem.New(http.StatusForbidden, "%s, and event %s is about %s: use a key for that namespace", who.what(), e.ID(), e.Subject())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
	defer cancel()
	if _, err := g.sink.URL(ctx); err != nil {
		return problem.New(http.StatusServiceUnavailable, "the event cannot be passed on: %s", err).WithRetryAfter(5)
	}
	var out acceptedJSON
	for _, e := range all {
		taken, err := g.passOn(ctx, e)
		if err != nil {
			g.metrics.event(g, e.Type(), failed, 1)
			g.log.Warn("Cannot pass an event on", "component", "events", "eventId", e.ID(), "error", err.Error())
			return problem.New(http.StatusServiceUnavailable, "the event cannot be passed on at present: send all events again later, those that were taken are recognised").WithRetryAfter(5)
		}
		if taken {
			out.Accepted++
		} else {
			out.Duplicates++
		}
	}
	return response.JSON(c, http.StatusAccepted, out)
}

// mayIngest returns the caller of a request that may bring events: with a key that has the
// scope events, or signed, which has no limit.
func (g *gateway) mayIngest(c *fiber.Ctx) (caller, error) {
	if g.secrets.signed(c) {
		if !strings.HasPrefix(c.Get(fiber.HeaderContentType), "application/cloudevents") {
			return caller{}, problem.New(http.StatusUnauthorized, "the signature covers the body alone, and not the headers that the event is in: sign an event in structured mode, or a batch")
		}
		return caller{}, nil
	}
	return g.keyForEvents(c)
}

// mayBringEvents refuses by the head alone those who have no key and do not claim to
// sign. Whether a signature is right only the body tells.
func (g *gateway) mayBringEvents(c *fiber.Ctx) error {
	if c.Get(standardwebhooks.HeaderSignature) != "" && len(*g.secrets.all.Load()) > 0 {
		return nil
	}
	_, err := g.keyForEvents(c)
	return err
}

// keyForEvents returns the caller of a request, and refuses one without a key that has the
// scope events. Rights in namespaces do not limit the events of a token.
func (g *gateway) keyForEvents(c *fiber.Ctx) (caller, error) {
	who, pending := g.identify(c)
	if pending != "" {
		ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
		defer cancel()
		var err error
		if who, err = g.review(ctx, pending); err != nil {
			return caller{}, problem.New(http.StatusServiceUnavailable, "the Kubernetes API does not say who the token belongs to: try again later")
		}
	}
	switch {
	case who.Scopes.has(scopeEvents):
		who.User = nil
		return who, nil
	case who.Name != "":
		return caller{}, problem.New(http.StatusForbidden, "%s may not send events: its key needs the scope events", who.Name)
	}
	g.challenge(c)
	return caller{}, problem.New(http.StatusUnauthorized, "send a key with the scope events, or sign the request as Standard Webhooks do: webhook-id, webhook-timestamp and webhook-signature")
}

// eventsOf reads one event, or a batch.
func eventsOf(c *fiber.Ctx) (all []event.Event, batch bool, err error) {
	if strings.HasPrefix(c.Get(fiber.HeaderContentType), event.ApplicationCloudEventsBatchJSON) {
		all, err = ingest.ParseBatch(bytes.Clone(c.Request().Body()))
		if err != nil {
			return nil, true, problem.New(http.StatusBadRequest, "%s", err)
		}
		return all, true, nil
	}
	e, err := readEvent(c)
	if err != nil {
		return nil, false, err
	}
	return []event.Event{*e}, false, nil
}

func (g *gateway) checkEvents(all []event.Event, batch bool) error {
	var faults []problem.FieldError
	for i, e := range all {
		place := ""
		if batch {
			place = ingest.Place(i)
		}
		for _, f := range g.checker.Check(e, place) {
			faults = append(faults, problem.FieldError{Pointer: f.Pointer, Detail: f.Detail})
		}
	}
	if len(faults) == 0 {
		return nil
	}
	g.metrics.event(g, others, refused, len(faults))
	p := problem.New(http.StatusUnprocessableEntity, "%s: %s", faults[0].Pointer, faults[0].Detail)
	p.Errors = faults
	return p
}

// passOn sends an event to the Broker, unless it has been taken before. It returns
// whether it was new.
func (g *gateway) passOn(ctx context.Context, e event.Event) (bool, error) {
	key := "ingested:" + e.Source() + "\x00" + e.ID()
	if _, ok := g.cache.Get(ctx, key); ok {
		g.metrics.event(g, e.Type(), duplicate, 1)
		return false, nil
	}
	known, err := g.history.Has(ctx, e.ID(), e.Source())
	if err == nil && known {
		g.metrics.event(g, e.Type(), duplicate, 1)
		return false, nil
	}
	signed := e.Clone()
	if err := g.signer.Sign(ctx, &signed); err != nil {
		return false, err
	}
	if err := g.sendToBroker(ctx, signed); err != nil {
		return false, err
	}
	// The Broker has it now. Should this not be written down, the event is passed on
	// again when it is sent again, and recognised by its id then.
	if _, err := g.record(ctx, &e); err != nil {
		g.log.Warn("Cannot record an event that was passed on", "component", "events", "eventId", e.ID(), "error", err.Error())
	}
	g.cache.Set(ctx, key, []byte{1}, g.config.Cache.TTL)
	g.metrics.event(g, e.Type(), processed, 1)
	return true, nil
}

// sendToBroker posts one event in binary mode, in which its data stays as it was signed.
func (g *gateway) sendToBroker(ctx context.Context, e event.Event) error {
	if err := g.postToBroker(ctx, e); err != nil {
		g.sink.Forget()
		return fmt.Errorf("send event %s: %w", e.ID(), err)
	}
	return nil
}

func (g *gateway) postToBroker(ctx context.Context, e event.Event) error {
	url, err := g.sink.URL(ctx)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	if err := cehttp.WriteRequest(ctx, binding.ToMessage(&e), req); err != nil {
		return err
	}
	events.Identify(req)
	res, err := staying.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16))
	if res.StatusCode/100 != 2 {
		return errors.New("the Broker answered " + res.Status)
	}
	return nil
}
