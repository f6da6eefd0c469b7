package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/eventsigner"
	"github.com/vitistack/stack/gateway/internal/filewatch"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/metrics"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// acceptedJSON counts the events of a request.
type acceptedJSON struct {
	// Accepted are forwarded to the Broker. Duplicates were accepted before.
	Accepted   int `json:"accepted"`
	Duplicates int `json:"duplicates"`
}

// Options are the settings and parts of External.
type Options struct {
	Settings config.Ingest
	Auth     *auth.Authenticator
	Signer   *eventsigner.Signer
	Broker   *events.Sender
	Recorder *Recorder
	// Cache remembers for CacheTTL which events were accepted.
	Cache    *cache.Cache
	CacheTTL time.Duration
	Metrics  *metrics.Gateway
	// Timeout bounds the handling of one request.
	Timeout time.Duration
	Log     *slog.Logger
}

// External receives events of external systems.
type External struct {
	Options
	checker *Checker
	secrets secrets
}

// NewExternal returns an External and loads its secrets. An invalid setting is an error that names its key.
func NewExternal(o Options) (*External, error) {
	x := &External{Options: o}
	var err error
	if x.checker, err = NewChecker(o.Settings.AllowedTypes); err != nil {
		return nil, fmt.Errorf("read configuration: key ingest.allowedTypes: %w", err)
	}
	if err := filewatch.Load(o.Settings.SecretsFile, x.loadSecrets); err != nil {
		return nil, fmt.Errorf("read configuration: keys ingest.secrets and ingest.secretsFile: %w", err)
	}
	return x, nil
}

// FollowSecrets loads the file of secrets again when it changes, until ctx ends.
func (x *External) FollowSecrets(ctx context.Context) {
	filewatch.Follow(ctx, x.Settings.SecretsFile, x.loadSecrets, x.Log)
}

func (x *External) loadSecrets(file []byte) error { return x.secrets.load(x.Settings.Secrets, file) }

// Receive checks the events of an external system and forwards them to the Broker. One invalid event refuses its whole batch.
func (x *External) Receive(c *fiber.Ctx) error {
	who, err := x.authenticate(c)
	if err != nil {
		return err
	}
	if len(c.Request().Body()) > x.Settings.MaxBytes {
		return problem.New(http.StatusRequestEntityTooLarge, "the events have %d bytes: send at most %d, or raise ingest.maxBytes", len(c.Request().Body()), x.Settings.MaxBytes)
	}
	all, batch, err := eventsOf(c)
	if err != nil {
		return err
	}
	if err := x.checkEvents(all, batch); err != nil {
		return err
	}
	for _, e := range all {
		if about := inventory.RefOfSubject(e.Subject()).Namespace; !auth.SenderVisibility(who).Includes(about) {
			return problem.New(http.StatusForbidden, "%s, and event %s is about %s: use a key for that namespace", who.DescribeLimit(), e.ID(), e.Subject())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), x.Timeout)
	defer cancel()
	if err := x.Broker.Check(ctx); err != nil {
		return problem.New(http.StatusServiceUnavailable, "the event cannot be passed on: %s", err).WithRetryAfter(5)
	}
	var out acceptedJSON
	for _, e := range all {
		taken, err := x.forward(ctx, e)
		if conflict := new(problem.Problem); errors.As(err, &conflict) {
			return conflict
		}
		if err != nil {
			x.Metrics.Event(e.Type(), failed, 1)
			x.Log.Warn("Cannot pass an event on", "eventId", e.ID(), "error", err.Error())
			return problem.New(http.StatusServiceUnavailable, "the event cannot be forwarded at present: send all events again later; accepted events are recognised").WithRetryAfter(5)
		}
		if taken {
			out.Accepted++
		} else {
			out.Duplicates++
		}
	}
	return response.JSON(c, http.StatusAccepted, out)
}

// authenticate returns the sender of a request: the owner of a key with the scope events, or an anonymous caller without limits for
// a valid signature.
func (x *External) authenticate(c *fiber.Ctx) (auth.Caller, error) {
	invalid := x.secrets.verify(c)
	if invalid == nil {
		if !strings.HasPrefix(c.Get(fiber.HeaderContentType), "application/cloudevents") {
			return auth.Caller{}, problem.New(http.StatusUnauthorized, "the signature covers only the body, but the attributes of the event are in headers: send the event in structured mode or in a batch")
		}
		return auth.Caller{}, nil
	}
	who, err := x.Auth.AdmitSender(c)
	if p := problem.From(err); err != nil && p.Status == http.StatusUnauthorized && c.Get(standardwebhooks.HeaderSignature) != "" {
		return auth.Caller{}, problem.New(p.Status, "the signature is not accepted: %s", invalid)
	}
	return who, err
}

// CheckHead refuses a request that has neither a key nor a signature, before its body is read. authenticate verifies the signature,
// which needs the body.
func (x *External) CheckHead(c *fiber.Ctx) error {
	if c.Get(standardwebhooks.HeaderSignature) != "" && len(*x.secrets.all.Load()) > 0 {
		return nil
	}
	_, err := x.Auth.AdmitSender(c)
	return err
}

// eventsOf reads one event or a batch from a request.
func eventsOf(c *fiber.Ctx) (all []event.Event, batch bool, err error) {
	if strings.HasPrefix(c.Get(fiber.HeaderContentType), event.ApplicationCloudEventsBatchJSON) {
		all, err = ParseBatch(bytes.Clone(c.Request().Body()))
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

// checkEvents returns a problem with every error of every event.
func (x *External) checkEvents(all []event.Event, batch bool) error {
	var found []problem.FieldError
	for i, e := range all {
		place := ""
		if batch {
			place = Place(i)
		}
		found = append(found, x.checker.Check(e, place)...)
	}
	if len(found) == 0 {
		return nil
	}
	x.Metrics.Event(metrics.Other, refused, len(found))
	p := problem.New(http.StatusUnprocessableEntity, "%s: %s", found[0].Pointer, found[0].Detail)
	p.Errors = found
	return p
}

// forward signs an event and sends it to the Broker, unless it was accepted before. It reports whether the event is new. A
// repetition of an event whose delivery has failed for good is forwarded again.
func (x *External) forward(ctx context.Context, e event.Event) (bool, error) {
	found, known := x.find(ctx, e)
	switch {
	case known && (found.Type != e.Type() || found.Subject != e.Subject()):
		x.Metrics.Event(e.Type(), refused, 1)
		return false, problem.New(http.StatusConflict, "another event has the id %q and the source %q: send event %s with another id, or with a source that no other system has", e.ID(), e.Source(), e.ID())
	case known && !found.Dead:
		x.Metrics.Event(e.Type(), duplicate, 1)
		return false, nil
	}
	signed := e.Clone()
	if err := x.Signer.Sign(ctx, &signed); err != nil {
		return false, err
	}
	if err := x.Broker.Send(ctx, signed); err != nil {
		return false, err
	}
	// The Broker has the event now. If it cannot be recorded, a repetition is forwarded again, and functions recognise its id.
	if _, err := x.Recorder.Record(ctx, &e); err != nil {
		x.Log.Warn("Cannot record an event that was passed on", "eventId", e.ID(), "error", err.Error())
	}
	x.Cache.Set(ctx, cacheKey(e), []byte(e.Type()+"\x00"+e.Subject()), x.CacheTTL)
	x.Metrics.Event(e.Type(), Processed, 1)
	return true, nil
}

// find returns what is known of the event that was accepted with the id and source of e: by the history, or while that cannot be read,
// by the cache.
func (x *External) find(ctx context.Context, e event.Event) (found history.Recorded, known bool) {
	found, known, err := x.Recorder.History.Find(ctx, e.ID(), e.Source())
	if err == nil {
		return found, known
	}
	cached, known := x.Cache.Get(ctx, cacheKey(e))
	found.Type, found.Subject, _ = strings.Cut(string(cached), "\x00")
	return found, known
}

func cacheKey(e event.Event) string { return "ingested:" + e.Source() + "\x00" + e.ID() }
