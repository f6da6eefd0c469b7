package broker

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"knative.dev/eventing/pkg/apis"
	duckeventing "knative.dev/eventing/pkg/apis/duck/v1"
	knbroker "knative.dev/eventing/pkg/broker"
	"knative.dev/eventing/pkg/kncloudevents"
	knattributes "knative.dev/eventing/pkg/kncloudevents/attributes"
	"knative.dev/eventing/pkg/utils"
)

type decision int

const (
	delivered decision = iota
	again
	deadLetter
	dropped
)

// outcome is the result of an attempt.
type outcome struct {
	decision decision
	delay    time.Duration        // before the next attempt, for again
	dead     binding.Transformers // adds the reason to the event, for deadLetter
}

// failure is a failed attempt.
type failure struct {
	code  int
	body  []byte // of the response
	retry bool
}

// try sends one request, forwards the reply, and decides what is next.
func (b *Broker) try(t Trigger, d *delivery) outcome {
	target := t.Subscriber
	if d.dead != nil {
		target = t.deadLetter
	}
	if target == nil { // the Trigger has lost its dead letter sink since
		b.log.Error("event lost: its Trigger has no dead letter sink any more", "trigger", t.Key(), "id", d.event.ID(), "type", d.event.Type(), "subject", d.event.Subject())
		return outcome{decision: dropped}
	}
	failed := b.request(t, d, target)
	if failed == nil {
		return outcome{decision: delivered}
	}
	d.tries++
	if failed.retry && d.tries <= t.retries {
		return outcome{decision: again, delay: t.backoff(d.tries-1, nil)}
	}
	log := b.log.With("trigger", t.Key(), "id", d.event.ID(), "type", d.event.Type(), "subject", d.event.Subject(),
		"code", failed.code, "tries", d.tries, "url", target.String())
	if t.deadLetter == nil || d.dead != nil {
		log.Error("event lost: it could not be delivered, and neither could a dead letter")
		return outcome{decision: dropped}
	}
	log.Warn("event goes to the dead letter sink")
	return outcome{decision: deadLetter, dead: reason(target, failed)}
}

func (b *Broker) request(t Trigger, d *delivery, target *url.URL) *failure {
	ctx, cancel := context.WithCancel(b.ctx)
	if t.timeout > 0 {
		ctx, cancel = context.WithTimeout(b.ctx, t.timeout)
	}
	defer cancel()
	request, err := newRequest(ctx, t, d, target)
	if err != nil {
		return &failure{code: http.StatusInternalServerError, body: []byte(err.Error())}
	}
	if err := t.identify(request, d.dead != nil); err != nil {
		return unanswered(err)
	}
	response, err := b.client.Do(request)
	if err != nil {
		return unanswered(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxEvent+1))
	if err != nil {
		return unanswered(err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		retry, _ := kncloudevents.SelectiveRetry(ctx, response, nil)
		return &failure{code: response.StatusCode, body: body, retry: retry}
	}
	if d.dead != nil {
		return nil
	}
	return b.reply(ctx, d, response.Header, body)
}

// newRequest encodes the event as Knative does: headers first, without the broker's own extensions.
func newRequest(ctx context.Context, t Trigger, d *delivery, target *url.URL) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("build a request: %w", err)
	}
	switch t.format {
	case duckeventing.DeliveryFormatJson:
		ctx = binding.WithForceStructured(ctx)
	case duckeventing.DeliveryFormatBinary:
		ctx = binding.WithForceBinary(ctx)
	}
	e := d.event
	if len(d.dead) > 0 {
		e = e.Clone() // transformers change it
	}
	if err := cehttp.WriteRequest(ctx, binding.ToMessage(&e), request, d.dead...); err != nil {
		return nil, fmt.Errorf("write the event to a request: %w", err)
	}
	for name, values := range d.header {
		request.Header[name] = values
	}
	request.Header.Set(apis.KnNamespaceHeader, t.Namespace)
	if d.dead == nil {
		request.Header.Set("Prefer", "reply")
	}
	return request, nil
}

// identify adds the Trigger's token for the receiver. It replaces a token of the event.
func (t Trigger) identify(request *http.Request, dead bool) error {
	audience := t.audience
	if dead {
		audience = t.deadLetterAudience
	}
	if t.tokens == nil || audience == "" {
		return nil
	}
	token, err := t.tokens.GetJWT(t.account, audience)
	if err != nil {
		return fmt.Errorf("request a token of Trigger %s: %w", t.Key(), err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	return nil
}

// reply accepts the event in a response, with the remaining hops. A body that is no event is a failed delivery, as in Knative's broker.
func (b *Broker) reply(ctx context.Context, d *delivery, header http.Header, body []byte) *failure {
	message := cehttp.NewMessage(header, io.NopCloser(bytes.NewReader(body)))
	if message.ReadEncoding() == binding.EncodingUnknown {
		if len(body) == 0 {
			return nil
		}
		return &failure{code: http.StatusBadGateway, body: []byte("the response is neither empty nor a CloudEvent"), retry: true}
	}
	e, err := binding.ToEvent(ctx, message)
	if err != nil {
		return &failure{code: http.StatusBadGateway, body: fmt.Appendf(nil, "read the reply: %v", err), retry: true}
	}
	if err := knbroker.SetTTL(e.Context, d.hops); err != nil {
		return &failure{code: http.StatusInternalServerError, body: fmt.Appendf(nil, "set the hop count: %v", err)}
	}
	switch err := b.accept(*e, utils.PassThroughHeaders(header)); {
	case errors.Is(err, errFull):
		return &failure{code: http.StatusServiceUnavailable, body: []byte(err.Error()), retry: true}
	case err != nil:
		return &failure{code: http.StatusBadRequest, body: fmt.Appendf(nil, "accept the reply: %v", err)}
	}
	return nil
}

// unanswered returns the failure of a request without a response, which counts as a 500.
func unanswered(err error) *failure {
	return &failure{code: http.StatusInternalServerError, body: fmt.Appendf(nil, "dispatch error: %v", err), retry: true}
}

// reason returns the extensions that Knative adds to a dead letter.
func reason(target *url.URL, f *failure) binding.Transformers {
	data := base64.StdEncoding.EncodeToString(f.body)
	return knattributes.KnativeErrorTransformers(*target, f.code, data[:min(len(data), knattributes.KnativeErrorDataExtensionMaxLength)])
}
