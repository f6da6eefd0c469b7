package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/vitistack/stack/events/outbound"
)

// Sender posts events to the Broker: those of the gateway, and what a function sends in addition
// to its reply. It follows no redirects. It is safe for concurrent use.
type Sender struct {
	sink *Sink
	http *http.Client
}

// NewSender returns a Sender to the address in the environment variable K_SINK, which
// a SinkBinding sets, or else to the address that find returns.
func NewSender(find FindSink) *Sender { return NewSinkSender(NewSink(os.Getenv("K_SINK"), find)) }

// NewSinkSender returns a Sender to a sink.
func NewSinkSender(sink *Sink) *Sender {
	return &Sender{sink: sink, http: &http.Client{Timeout: sendTimeout, CheckRedirect: outbound.Stay}}
}

// sendTimeout is for the broker to accept one event.
const sendTimeout = 10 * time.Second

// ErrUnanswered is the error of Send if the sink has got the whole event, and has not answered in time. Knative's
// Broker in memory answers only after the subscribers have answered, with all their retries.
var ErrUnanswered = errors.New("the sink has the event, and has not answered in time")

// Check returns an error if the address of the sink is not known.
func (s *Sender) Check(ctx context.Context) error {
	_, err := s.sink.URL(ctx)
	return err
}

// Require returns a Handler that calls handle once the address of the sink is known. Until
// then each delivery fails with a transient error before it has side effects.
func (s *Sender) Require(handle Handler) Handler {
	return func(ctx context.Context, in event.Event) (*event.Event, error) {
		if err := s.Check(ctx); err != nil {
			return nil, err
		}
		return handle(ctx, in)
	}
}

// Send posts one event in binary mode, in which its data keeps the bytes that were signed. After
// an error the event may have arrived or not, and the next call looks the address of the sink up
// again. The error is ErrNoSink if there is no sink, and ErrUnanswered after a timeout if the sink has the event.
func (s *Sender) Send(ctx context.Context, e event.Event) error {
	if err := s.send(ctx, e); err != nil {
		s.sink.Forget()
		return fmt.Errorf("send event %s: %w", e.ID(), err)
	}
	return nil
}

// Request sends an event that requests a reconcile, like Send. It returns no error if the sink has the event and does not answer
// in time: the event is delivered, and a second one would only repeat the reconcile.
func (s *Sender) Request(ctx context.Context, e event.Event) error {
	err := s.Send(ctx, e)
	if errors.Is(err, ErrUnanswered) {
		return nil
	}
	return err
}

func (s *Sender) send(ctx context.Context, e event.Event) error {
	url, err := s.sink.URL(ctx)
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
	Identify(req)
	var written atomic.Bool
	trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) { written.Store(info.Err == nil) }}
	res, err := s.http.Do(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		var timeout net.Error
		if written.Load() && errors.As(err, &timeout) && timeout.Timeout() && !errors.Is(ctx.Err(), context.Canceled) {
			return fmt.Errorf("%w: %w", ErrUnanswered, err)
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxEventBytes))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the sink answered %s", res.Status)
	}
	return nil
}

// tokenFile is where a SinkBinding puts the token for a sink that asks who sends.
const tokenFile = "/oidc/token"

// Identify puts the token that a SinkBinding gives into a request to its sink. It
// is read each time, because it expires. If there is no token, the sink asks
// for none. OIDC_TOKEN_FILE names another file.
func Identify(req *http.Request) { identify(req, cmp.Or(os.Getenv("OIDC_TOKEN_FILE"), tokenFile)) }

func identify(req *http.Request, file string) {
	if token, err := os.ReadFile(file); err == nil {
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
}

// NewReconcileRequest returns an event that requests a reconcile of an object. cause determines
// its id: the same cause for the same object gives the same event, so that a
// duplicate can be recognised.
func NewReconcileRequest(source string, ref Ref, uid, cause string) event.Event {
	e := event.New()
	e.SetType(TypeResync)
	e.SetSource(source)
	e.SetID(uid + "." + cause)
	ref.Set(&e, uid)
	return e
}

// RequestID returns the id of a request to an external system. A repetition after interval has another id: the id of an answer is
// made of the request's, an id is accepted once, and the first answer may have been lost behind the gateway.
func RequestID(request string, at time.Time, interval time.Duration) string {
	return fmt.Sprintf("%s.%d", request, at.Truncate(interval).Unix())
}
