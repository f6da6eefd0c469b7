package events

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/vitistack/stack/events/outbound"
)

// Sender posts events to a sink, which is where a function sends more than the
// one event that it may reply.
type Sender struct {
	sink string
	http *http.Client
}

// NewSender makes a sender for the sink that the environment variable K_SINK
// names, which a SinkBinding sets.
func NewSender() (*Sender, error) {
	sink := os.Getenv("K_SINK")
	if sink == "" {
		return nil, errors.New("read K_SINK: it is empty; a SinkBinding has to set it to the Broker's address")
	}
	return &Sender{sink: sink, http: &http.Client{Timeout: sendTimeout, CheckRedirect: outbound.Stay}}, nil
}

// sendTimeout is for the broker to accept one event.
const sendTimeout = 10 * time.Second

// Send posts one event in binary mode. An error means that it may or may not have
// arrived.
func (s *Sender) Send(ctx context.Context, e event.Event) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.sink, nil)
	if err != nil {
		return fmt.Errorf("send event %s: %w", e.ID(), err)
	}
	if err := cehttp.WriteRequest(ctx, binding.ToMessage(&e), req); err != nil {
		return fmt.Errorf("send event %s: %w", e.ID(), err)
	}
	Identify(req)
	res, err := s.http.Do(req)
	if err != nil {
		return fmt.Errorf("send event %s: %w", e.ID(), err)
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxEventBytes))
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("send event %s: the sink answered %s", e.ID(), res.Status)
	}
	return nil
}

// tokenFile is where a SinkBinding puts the token for a sink that asks who sends.
const tokenFile = "/oidc/token"

// Identify puts the token that a SinkBinding gives into a request to its sink. It
// is read each time, since it does not last. Where there is none, the sink asks
// for none.
func Identify(req *http.Request) { identify(req, tokenFile) }

func identify(req *http.Request, file string) {
	if token, err := os.ReadFile(file); err == nil {
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
}

// LookAgain is the event that asks to look at an object once more. cause makes
// its id: the same cause for the same object gives the same event, so that a
// duplicate can be recognised.
func LookAgain(source string, ref Ref, uid, cause string) event.Event {
	e := event.New()
	e.SetType(TypeResync)
	e.SetSource(source)
	e.SetID(uid + "." + cause)
	ref.Set(&e, uid)
	return e
}
