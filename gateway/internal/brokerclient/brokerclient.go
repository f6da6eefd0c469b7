// Package brokerclient sends the gateway's events to the Knative Broker.
package brokerclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/outbound"
)

// maxAnswer bounds what is read of the Broker's response, so that its connection can be used again.
const maxAnswer = 1 << 16

// Client sends events to the Broker.
type Client struct{ sink *events.Sink }

// New returns a client for the Broker that sink finds.
func New(sink *events.Sink) *Client { return &Client{sink: sink} }

// client follows no redirects.
var client = &http.Client{CheckRedirect: outbound.Stay}

// Check returns an error if the Broker's address is not known.
func (c *Client) Check(ctx context.Context) error {
	_, err := c.sink.URL(ctx)
	return err
}

// Send posts one event in binary mode, in which its data keeps the bytes that were signed. After an error the next call looks the
// Broker's address up again. The error is events.ErrNoSink if there is no Broker.
func (c *Client) Send(ctx context.Context, e event.Event) error {
	if err := c.post(ctx, e); err != nil {
		c.sink.Forget()
		return fmt.Errorf("send event %s: %w", e.ID(), err)
	}
	return nil
}

func (c *Client) post(ctx context.Context, e event.Event) error {
	url, err := c.sink.URL(ctx)
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
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode/100 != 2 {
		return errors.New("the Broker answered " + res.Status)
	}
	return nil
}
