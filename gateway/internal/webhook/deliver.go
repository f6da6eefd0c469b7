// Package webhook delivers the events of the history's outbox to endpoints, and retries until an endpoint accepts an event or
// its retries are used up.
package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/gateway/internal/history"
)

// Endpoint is a receiver of events.
type Endpoint struct {
	// Name identifies the endpoint in logs, metrics and dead letters. It contains nothing secret.
	Name    string
	URL     string
	Timeout time.Duration
	// Retries is the number of attempts after the first; a negative number means no limit.
	Retries int
	// Types and Namespaces select the events; none means all.
	Types      []string
	Namespaces []string
	// Key signs deliveries. It may be nil.
	Key *SigningKey
	// FirstDelay is the delay after the first failure. It doubles with each further failure.
	FirstDelay time.Duration
	// Identify adds credentials to a request. It may be nil.
	Identify func(*http.Request)
	// Inside is for an endpoint of the cluster itself. The outbound rules do not apply to it.
	Inside bool
}

// party identifies the receiver of an endpoint's pending deliveries: its name and its address without the query, which may be a
// credential that changes. A delivery is never sent to another party.
func (e Endpoint) party() string {
	if e.Inside {
		return e.Name
	}
	address, _, _ := strings.Cut(e.URL, "?")
	sum := sha256.Sum256([]byte(address))
	return e.Name + "@" + hex.EncodeToString(sum[:8])
}

// Wants reports whether the endpoint receives an event.
func (e Endpoint) Wants(eventType, namespace string) bool {
	return (len(e.Types) == 0 || slices.ContainsFunc(e.Types, func(t string) bool { return Matches(t, eventType) })) &&
		(len(e.Namespaces) == 0 || slices.Contains(e.Namespaces, namespace))
}

// Types returns the types of events that webhooks can receive.
func Types() []string {
	return slices.DeleteFunc(slices.Clone(events.Types), func(t string) bool {
		_, ok := events.NewData(t)
		return !ok
	})
}

// UnknownTypes returns those of Types that match no event.
func (e Endpoint) UnknownTypes() []string {
	var unknown []string
	for _, pattern := range e.Types {
		if !slices.ContainsFunc(Types(), func(t string) bool { return Matches(pattern, t) }) {
			unknown = append(unknown, pattern)
		}
	}
	return unknown
}

// Matches reports whether a type matches a pattern, which may end in *.
func Matches(pattern, eventType string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(eventType, prefix)
	}
	return pattern == eventType
}

// Outcomes of an attempt.
const (
	Delivered = "delivered"
	Retried   = "retried"
	Dead      = "dead"
)

// Deliverer delivers the events of the history's outbox.
type Deliverer struct {
	History   *history.Store
	Endpoints []Endpoint
	// Count is called after each attempt.
	Count func(endpoint, outcome string)
	Log   *slog.Logger
	// Outbound are the rules for connections to endpoints outside of the cluster.
	Outbound outbound.Rules
	// AbandonedAfter is the time after which a due delivery that no replica makes becomes a dead letter, because its
	// endpoint is not configured. Default: five minutes.
	AbandonedAfter time.Duration
	// Timeout bounds each query of the history, because a connection to a database that has vanished hangs for a quarter of an hour. Default: 30 s.
	Timeout time.Duration

	// inside and outside connect to endpoints inside and outside of the cluster.
	inside, outside *http.Client
}

// newClient returns a client that follows no redirects.
func newClient(through http.RoundTripper) *http.Client {
	return &http.Client{Transport: through, CheckRedirect: outbound.Stay}
}

// Bounds of delivering.
const (
	// longestDelay bounds the delay between attempts.
	longestDelay = 10 * time.Minute
	// idleDelay is the time between two reads of an outbox without signals.
	idleDelay = 30 * time.Second
	// abandonedAfter is the default of AbandonedAfter. Meanwhile a replica with an earlier configuration may still end.
	abandonedAfter = 5 * time.Minute
	// queryTimeout is the default of Timeout.
	queryTimeout = 30 * time.Second
	// claimMargin is the time beyond its timeout for which other replicas do not claim a delivery.
	claimMargin = 10 * time.Second
	// maxAnswer bounds in bytes what is read of a response.
	maxAnswer = 4096
)

// Plan returns the deliveries of an event to all endpoints that want it, except the endpoint named skip.
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
			Endpoint: endpoint.party(), EventID: e.ID(), Type: e.Type(), Body: string(body), Due: now, Created: now,
		})
	}
	return planned
}

// Run delivers until ctx ends. Interrupted deliveries are repeated after the next start. Each endpoint has a goroutine of its own, so
// that a slow endpoint delays no other.
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
	d.logError(d.dropOtherParties(ctx, time.Now().Add(longestDelay)))
	limit := cmp.Or(d.AbandonedAfter, abandonedAfter)
	abandoned := time.NewTicker(limit)
	defer abandoned.Stop()
	var running sync.WaitGroup
	wakes := make([]chan struct{}, len(d.Endpoints))
	for i, e := range d.Endpoints {
		wakes[i] = make(chan struct{}, 1)
		running.Go(func() { d.deliverTo(ctx, e, wakes[i]) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-abandoned.C:
			d.logError(d.dropOtherParties(ctx, now.Add(-limit)))
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

// deliverTo delivers to one endpoint.
func (d *Deliverer) deliverTo(ctx context.Context, e Endpoint, wake <-chan struct{}) {
	for ctx.Err() == nil {
		n, err := d.deliverDue(ctx, e)
		if err != nil && ctx.Err() == nil {
			d.Log.Warn("Cannot read the outbox, retrying", "endpoint", e.Name, "error", err.Error())
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

// limit bounds a query of the history.
func (d *Deliverer) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(d.Timeout, queryTimeout))
}

// pause returns the time until the next delivery is due.
func (d *Deliverer) pause(ctx context.Context, e Endpoint) time.Duration {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	due, ok, err := d.History.NextDue(ctx, e.party())
	if err != nil || !ok {
		return idleDelay
	}
	return min(max(time.Until(due), 10*time.Millisecond), idleDelay)
}

// deliverDue makes the due deliveries in parallel, and returns their number.
func (d *Deliverer) deliverDue(ctx context.Context, e Endpoint) (int, error) {
	claimed, err := d.claim(ctx, e)
	var running sync.WaitGroup
	for _, delivery := range claimed {
		running.Go(func() { d.deliver(ctx, e, delivery) })
	}
	running.Wait()
	return len(claimed), err
}

func (d *Deliverer) claim(ctx context.Context, e Endpoint) ([]history.Delivery, error) {
	ctx, cancel := d.limit(ctx)
	defer cancel()
	now := time.Now()
	return d.History.Claim(ctx, e.party(), now, now.Add(e.Timeout+claimMargin))
}

func (d *Deliverer) deliver(ctx context.Context, endpoint Endpoint, delivery history.Delivery) {
	answer := d.try(ctx, endpoint, delivery)
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := d.limit(ctx)
	defer cancel()
	if answer.err == nil {
		d.Count(endpoint.Name, Delivered)
		d.logError(d.History.Delivered(ctx, delivery))
		return
	}
	delivery.Attempts++
	delivery.Error = answer.err.Error()
	if answer.final || (endpoint.Retries >= 0 && delivery.Attempts > endpoint.Retries) {
		d.Count(endpoint.Name, Dead)
		d.Log.Warn("Event cannot be delivered", "endpoint", endpoint.Name, "eventId", delivery.EventID, "attempts", delivery.Attempts, "error", delivery.Error)
		d.logError(d.History.MoveToDeadLetters(ctx, delivery, letter(endpoint.Name, delivery, answer.code)))
		return
	}
	d.Count(endpoint.Name, Retried)
	delivery.Due = time.Now().Add(max(endpoint.delay(delivery.Attempts), answer.retryAfter))
	d.logError(d.History.Retry(ctx, delivery))
}

func (d *Deliverer) logError(err error) {
	if err != nil {
		d.Log.Warn("Cannot record a delivery, it will be repeated", "error", err.Error())
	}
}

// delay returns the delay after a number of failures, with jitter.
func (e Endpoint) delay(failures int) time.Duration {
	pause := longestDelay
	if shift := failures - 1; shift < 20 {
		pause = min(e.FirstDelay<<shift, longestDelay)
	}
	return pause + time.Duration(rand.Int64N(int64(pause)/5+1)) //nolint:gosec // a delay needs no secure random number
}

// answer is the result of an attempt.
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
		return answer{err: fmt.Errorf("deliver to %s: %w", endpoint.Name, withoutURL(err))}
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 == 2 {
		return answer{code: res.StatusCode}
	}
	return answer{
		err: fmt.Errorf("deliver to %s: it answered %s", endpoint.Name, res.Status), code: res.StatusCode,
		final:      final(res.StatusCode) && endpoint.Retries >= 0,
		retryAfter: retryAfter(res.Header.Get("Retry-After"), time.Now()),
	}
}

// withoutURL returns the error of a request without the URL, whose path and query may be a credential of the endpoint. Dead letters and the
// log have the error.
func withoutURL(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// final reports whether a status is permanent: the endpoint does not exist any more, or it is at another address.
func final(code int) bool { return code == http.StatusGone || code/100 == 3 }

// retryAfter parses a Retry-After header, which has seconds or a date. The result is at most longestDelay, and 0 without a valid header.
func retryAfter(header string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.Atoi(header); err == nil {
		wait = time.Duration(min(seconds, int(longestDelay/time.Second))) * time.Second
	} else if at, err := http.ParseTime(header); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), longestDelay)
}

func (d *Deliverer) clientFor(e Endpoint) *http.Client {
	if e.Inside {
		return d.inside
	}
	return d.outside
}
