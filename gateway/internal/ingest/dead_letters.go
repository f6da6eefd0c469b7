package ingest

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/domainevents"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// ReceiveDeadLetter records an event that the Broker could not deliver, except a heartbeat.
func (d *Deliveries) ReceiveDeadLetter(c *fiber.Ctx) error {
	in, err := readEvent(c)
	if err != nil {
		return err
	}
	if _, ok := d.Heartbeats.LeaseOf(*in); ok {
		return d.finish(c, in, ignored, nil) // the next one has followed
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.Timeout)
	defer cancel()
	nameDestination(in, c.Query("destination"))
	letter := newDeadLetter(in)
	written, err := d.Recorder.History.Write(ctx, history.Record{DeadLetters: []history.DeadLetter{letter}})
	if err != nil {
		return d.finish(c, in, failed, d.unrecorded(err))
	}
	if written.DeadLetters == 0 {
		return d.finish(c, in, duplicate, nil)
	}
	d.Recorder.Show(*in, letter.Namespace)
	return d.finish(c, in, deadLettered, nil)
}

// maxDestination limits the name of a Trigger, which is a DNS label.
const maxDestination = 63

// nameDestination sets the destination of a dead letter to the Trigger that its address names, if the
// Broker does not report the address of the receiver.
func nameDestination(in *event.Event, trigger string) {
	if in.Extensions()["knativeerrordest"] != nil || trigger == "" || len(trigger) > maxDestination {
		return
	}
	in.SetExtension("knativeerrordest", strings.Clone(trigger)) // Fiber reuses the memory of a query
}

// newDeadLetter reads what the Broker reports about an event that it could not deliver.
func newDeadLetter(in *event.Event) history.DeadLetter {
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
		Time: time.Now(), Data: string(domainevents.Data(*in)),
	}
	if letter.Name == "" {
		ref := inventory.RefOfSubject(in.Subject())
		letter.Namespace, letter.Name = ref.Namespace, ref.Name
	}
	return letter
}

// decodeErrorData decodes the response of a function, which Knative encodes in base64.
func decodeErrorData(text string) string {
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !utf8.Valid(decoded) {
		return text
	}
	return string(decoded)
}
