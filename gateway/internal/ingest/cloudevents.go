package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// readEvent reads a CloudEvent in binary or structured mode from a request.
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
	if e.SpecVersion() != event.CloudEventsVersionV1 {
		return nil, problem.New(http.StatusBadRequest, "the event has specversion %s: send version %s", e.SpecVersion(), event.CloudEventsVersionV1)
	}
	return e, nil
}

// writeEvent writes an event in structured mode as the response.
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
