// Package webhook delivers the events of the history's outbox to endpoints, and retries until an endpoint accepts an event or
// its retries are used up.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/gateway/internal/history"
)

// Endpoint is somebody who is told of events.
type Endpoint struct {
	// Name tells endpoints apart, and has nothing secret.
	Name    string
	URL     string
	Timeout time.Duration
	// Retries are tried after the first try; a negative number means without end.
	Retries int
	// Types and Namespaces bound what the endpoint is told of; none means all.
	Types      []string
	Namespaces []string
	// Key signs what is sent, unless it is nil.
	Key *SigningKey
	// FirstDelay is the pause after the first failure; it doubles with each further
	// one.
	FirstDelay time.Duration
	// Identify says in a request who sends it, unless it is nil.
	Identify func(*http.Request)
	// Inside is for an endpoint of the cluster itself, which no rules bound.
	Inside bool
}

// Wants tells whether the endpoint is to be told of an event.
func (e Endpoint) Wants(eventType, namespace string) bool {
	return (len(e.Types) == 0 || slices.ContainsFunc(e.Types, func(t string) bool { return Matches(t, eventType) })) &&
		(len(e.Namespaces) == 0 || slices.Contains(e.Namespaces, namespace))
}

// Matches tells whether a type is the pattern's, which may end in *.
func Matches(pattern, eventType string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(eventType, prefix)
	}
	return pattern == eventType
}

// Outcomes of a try.
const (
	Delivered = "delivered"
	Retried   = "retried"
	Dead      = "dead"
)

// Deliverer delivers what the history's outbox holds.
type Deliverer struct {
	History   *history.Store
	Endpoints []Endpoint
	// Count is called after each try.
	Count func(endpoint, outcome string)
	Log   *slog.Logger
	// Outbound says who outside of the cluster may be connected to.
	Outbound outbound.Rules

	// inside and outside are for the cluster itself and for others.
	inside, outside *http.Client
}

// newClient makes a client that sends nothing anywhere else than it is told.
func newClient(through http.RoundTripper) *http.Client {
	return &http.Client{Transport: through, CheckRedirect: outbound.Stay}
}

// Bounds of delivering.
const (
	// longestDelay bounds the pauses between tries.
	longestDelay = 10 * time.Minute
	// idleDelay is between two looks at an outbox that says nothing.
	idleDelay = 30 * time.Second
	// lease is how long a delivery is nobody else's, beside its timeout.
	lease = 10 * time.Second
	// maxAnswer is how much of an answer is read.
	maxAnswer = 4096
)

// Plan is the deliveries that an event leads to. The endpoint named skip gets it
// in another way.
func (d *Deliverer) Plan(e event.Event, namespace, skip string) []history.Delivery {
	var planned []history.Delivery
	var body []byte
	for _, endpoint := range d.Endpoints {
		if endpoint.Name == skip || !endpoint.Wants(e.Type(), namespace) {
			continue
		}
		if body == nil {
			encoded, err := json.Marshal(e)
			if err != nil {
				d.Log.Error("Cannot encode event", "eventId", e.ID(), "error", err.Error())
				return nil
			}
			body = encoded
		}
		now := time.Now()
		planned = append(planned, history.Delivery{
			Endpoint: endpoint.Name, EventID: e.ID(), Type: e.Type(), Body: string(body), Due: now, Created: now,
		})
	}
	return planned
}

// Run delivers until ctx ends. Deliveries that are under way then are made again
// after the next start. Each endpoint has its own pace, so that one that hangs
// holds up nobody else.
func (d *Deliverer) Run(ctx context.Context) {
	d.inside = newClient(http.DefaultTransport)
	through := http.DefaultTransport.(*http.Transport).Clone()
	through.DialContext = d.Outbound.DialContext
	d.outside = newClient(through)
	select {
	case <-ctx.Done():
		return
	case <-d.History.Migrated():
	}
	names := make([]string, 0, len(d.Endpoints))
	for _, e := range d.Endpoints {
		names = append(names, e.Name)
	}
	d.note(d.History.KeepEndpoints(ctx, names))
	var running sync.WaitGroup
	wakes := make([]chan struct{}, len(d.Endpoints))
	for i, e := range d.Endpoints {
		wakes[i] = make(chan struct{}, 1)
		running.Go(func() { d.serve(ctx, e, wakes[i]) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-d.History.Outbox():
			for _, wake := range wakes {
				select {
				case wake <- struct{}{}:
				default:
				}
			}
		}
	}
	running.Wait()
}

// serve delivers to one endpoint.
func (d *Deliverer) serve(ctx context.Context, e Endpoint, wake <-chan struct{}) {
	for ctx.Err() == nil {
		n, err := d.round(ctx, e)
		if err != nil && ctx.Err() == nil {
			d.Log.Warn("Cannot read the outbox, trying again", "endpoint", e.Name, "error", err.Error())
		}
		if n > 0 && err == nil {
			continue
		}
		timer := time.NewTimer(d.pause(ctx, e))
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// pause is until the next delivery is due.
func (d *Deliverer) pause(ctx context.Context, e Endpoint) time.Duration {
	due, ok, err := d.History.NextDue(ctx, e.Name)
	if err != nil || !ok {
		return idleDelay
	}
	return min(max(time.Until(due), 10*time.Millisecond), idleDelay)
}

// round makes deliveries that are due at the same time, and returns how many there
// were.
func (d *Deliverer) round(ctx context.Context, e Endpoint) (int, error) {
	now := time.Now()
	claimed, err := d.History.Claim(ctx, e.Name, now, now.Add(e.Timeout+lease))
	var running sync.WaitGroup
	for _, delivery := range claimed {
		running.Go(func() { d.deliver(ctx, e, delivery) })
	}
	running.Wait()
	return len(claimed), err
}

func (d *Deliverer) deliver(ctx context.Context, endpoint Endpoint, delivery history.Delivery) {
	answer := d.try(ctx, endpoint, delivery)
	if ctx.Err() != nil {
		return
	}
	if answer.err == nil {
		d.Count(endpoint.Name, Delivered)
		d.note(d.History.Delivered(ctx, delivery))
		return
	}
	delivery.Attempts++
	delivery.Error = answer.err.Error()
	if answer.final || (endpoint.Retries >= 0 && delivery.Attempts > endpoint.Retries) {
		d.Count(endpoint.Name, Dead)
		d.Log.Warn("Event cannot be delivered", "endpoint", endpoint.Name, "eventId", delivery.EventID, "attempts", delivery.Attempts, "error", delivery.Error)
		d.note(d.History.Bury(ctx, delivery, letter(endpoint, delivery, answer.code)))
		return
	}
	d.Count(endpoint.Name, Retried)
	delivery.Due = time.Now().Add(max(endpoint.delay(delivery.Attempts), answer.retryAfter))
	d.note(d.History.PutOff(ctx, delivery))
}

func (d *Deliverer) note(err error) {
	if err != nil {
		d.Log.Warn("Cannot record a delivery, it will be made again", "error", err.Error())
	}
}

// delay is the pause after a number of failures, a little different each time.
func (e Endpoint) delay(failures int) time.Duration {
	pause := longestDelay
	if shift := failures - 1; shift < 20 {
		pause = min(e.FirstDelay<<shift, longestDelay)
	}
	return pause + time.Duration(rand.Int64N(int64(pause)/5+1)) //nolint:gosec // nobody gains by guessing a pause
}

// answer is what a try came to.
type answer struct {
	err        error
	code       int
	final      bool
	retryAfter time.Duration
}

func (d *Deliverer) try(ctx context.Context, endpoint Endpoint, delivery history.Delivery) answer {
	ctx, cancel := context.WithTimeout(ctx, endpoint.Timeout)
	defer cancel()
	body := []byte(delivery.Body)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint.URL, bytes.NewReader(body))
	if err != nil {
		return answer{err: fmt.Errorf("deliver to %s: %w", endpoint.Name, err), final: true}
	}
	req.Header.Set("Content-Type", event.ApplicationCloudEventsJSON)
	req.Header.Set("User-Agent", "vitistack-gateway")
	if endpoint.Key != nil {
		now := time.Now()
		// A full stop would make the signed text ambiguous.
		id := strings.ReplaceAll(delivery.EventID, ".", "_")
		req.Header.Set(standardwebhooks.HeaderID, id)
		req.Header.Set(standardwebhooks.HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
		req.Header.Set(standardwebhooks.HeaderSignature, endpoint.Key.Sign(id, now, body))
	}
	if endpoint.Identify != nil {
		endpoint.Identify(req)
	}
	res, err := d.clientFor(endpoint).Do(req)
	if err != nil {
		return answer{err: fmt.Errorf("deliver to %s: %w", endpoint.Name, err)}
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 == 2 {
		return answer{code: res.StatusCode}
	}
	return answer{
		err: fmt.Errorf("deliver to %s: it answered %s", endpoint.Name, res.Status), code: res.StatusCode,
		final:      final(res.StatusCode) && endpoint.Retries >= 0,
		retryAfter: retryAfter(res.Header.Get("Retry-After")),
	}
}

// final tells whether an answer will not get better: the request is at fault.
func final(code int) bool {
	switch code {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return code/100 == 3 || code/100 == 4
}

// retryAfter reads a Retry-After header in seconds, up to a bound.
func retryAfter(header string) time.Duration {
	seconds, err := strconv.Atoi(header)
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, longestDelay)
}

func (d *Deliverer) clientFor(e Endpoint) *http.Client {
	if e.Inside {
		return d.inside
	}
	return d.outside
}

// letter is the dead letter of a delivery.
func letter(endpoint Endpoint, d history.Delivery, code int) history.DeadLetter {
	out := history.DeadLetter{
		ID: d.EventID, Destination: endpoint.Name, Type: d.Type, Code: code, Error: d.Error, Time: time.Now(), Data: d.Body,
	}
	var e event.Event
	if err := json.Unmarshal([]byte(d.Body), &e); err == nil {
		out.Source, out.Subject = e.Source(), e.Subject()
		out.Namespace, _ = e.Extensions()["namespace"].(string)
		out.Name, _ = e.Extensions()["name"].(string)
	}
	return out
}
