// Package ingest checks events that come from external systems before they enter
// the Broker.
package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// Bounds of an event's attributes, which are those of the history's columns.
const (
	longestName    = 255
	longestSubject = 1024
	// mostInBatch is how many events come at once at most.
	mostInBatch = 100
	// mostAhead is for clocks that are wrong, mostBehind for senders that were cut
	// off.
	mostAhead  = 24 * time.Hour
	mostBehind = 365 * 24 * time.Hour
)

// Checker knows which events may come, and what their data has to be.
type Checker struct {
	allowed []string
	schemas map[string]*jsonschema.Schema
	printer *message.Printer
}

// NewChecker returns a checker for these types. Each needs a schema.
func NewChecker(allowed []string) (*Checker, error) {
	c := &Checker{allowed: allowed, schemas: map[string]*jsonschema.Schema{}, printer: message.NewPrinter(language.English)}
	for _, t := range allowed {
		s, err := compile(t)
		if err != nil {
			return nil, err
		}
		c.schemas[t] = s
	}
	return c, nil
}

func compile(eventType string) (*jsonschema.Schema, error) {
	content, err := events.Schemas.ReadFile("schemas/" + eventType + ".json")
	if err != nil {
		return nil, fmt.Errorf("type %s has no schema", eventType)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("read schema of %s: %w", eventType, err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(eventType, document); err != nil {
		return nil, fmt.Errorf("read schema of %s: %w", eventType, err)
	}
	schema, err := compiler.Compile(eventType)
	if err != nil {
		return nil, fmt.Errorf("read schema of %s: %w", eventType, err)
	}
	return schema, nil
}

// ParseBatch reads a batch. It is an error if it is no list of events, or too
// long.
func ParseBatch(body []byte) ([]event.Event, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, errors.New("a batch is a JSON list of events")
	}
	if len(raw) == 0 || len(raw) > mostInBatch {
		return nil, fmt.Errorf("a batch has from 1 to %d events, this one has %d", mostInBatch, len(raw))
	}
	all := make([]event.Event, len(raw))
	for i, one := range raw {
		if err := json.Unmarshal(one, &all[i]); err != nil {
			return nil, fmt.Errorf("event %d cannot be read: %w", i, err)
		}
	}
	return all, nil
}

// Check lists what is wrong with an event. place is what pointers begin with.
func (c *Checker) Check(e event.Event, place string) []problem.FieldError {
	var found []problem.FieldError
	report := func(field, detail string, args ...any) {
		found = append(found, problem.FieldError{Pointer: place + field, Detail: fmt.Sprintf(detail, args...)})
	}
	if c.schemas[e.Type()] == nil {
		report("/type", "events of type %s are not taken: write %s", e.Type(), strings.Join(c.allowed, ", "))
		return found
	}
	if e.SpecVersion() != event.CloudEventsVersionV1 {
		report("/specversion", "it is %s: write %s", e.SpecVersion(), event.CloudEventsVersionV1)
	}
	for _, a := range []struct {
		field, value string
		most         int
	}{{"/id", e.ID(), longestName}, {"/source", e.Source(), longestName}, {"/subject", e.Subject(), longestSubject}} {
		if len(a.value) > a.most {
			report(a.field, "it has %d bytes: write at most %d", len(a.value), a.most)
		}
	}
	if isOwnSource(e.Source()) {
		report("/source", "%q is a source of the stack: write one of your own system, such as /ticketing", e.Source())
	}
	if err := e.Validate(); err != nil {
		var invalid event.ValidationError
		if errors.As(err, &invalid) {
			for _, field := range sortedFields(invalid) {
				report("/"+field, "%s", strings.Join(strings.Fields(invalid[field].Error()), " "))
			}
		} else {
			report("", "%s", err)
		}
	}
	if now := time.Now(); !e.Time().IsZero() && !Plausible(e.Time(), now) {
		report("/time", "it is not from %s to %s: write when it happened, such as %s, or leave it out",
			rfc3339(now.Add(-mostBehind)), rfc3339(now.Add(mostAhead)), rfc3339(now))
	}
	if err := events.CheckText(e); err != nil {
		report("", "%s", err)
	}
	if media := e.DataContentType(); media != "" && !strings.HasPrefix(media, event.ApplicationJSON) {
		report("/datacontenttype", "the data has to be application/json, not %s", media)
		return found
	}
	return append(found, c.checkData(e, place+"/data")...)
}

// ownSources begin the sources of the stack's own events.
var ownSources = []string{"/gateway", "/functions", "/apis"}

// isOwnSource reports whether a source is one of the stack's own, or differs from one only in what a reader may overlook.
func isOwnSource(source string) bool {
	source = "/" + strings.Trim(strings.ToLower(source), "/ ") + "/"
	return slices.ContainsFunc(ownSources, func(own string) bool { return strings.HasPrefix(source, own+"/") })
}

// Plausible reports whether something can have happened at a time.
func Plausible(t, now time.Time) bool {
	return t.After(now.Add(-mostBehind)) && t.Before(now.Add(mostAhead))
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func sortedFields(e event.ValidationError) []string {
	fields := make([]string, 0, len(e))
	for field := range e {
		fields = append(fields, field)
	}
	slices.Sort(fields)
	return fields
}

func (c *Checker) checkData(e event.Event, place string) []problem.FieldError {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(e.Data()))
	if err != nil {
		return []problem.FieldError{{Pointer: place, Detail: "the data is no JSON"}}
	}
	var refused *jsonschema.ValidationError
	if err := c.schemas[e.Type()].Validate(value); errors.As(err, &refused) {
		return c.reasons(refused, place)
	} else if err != nil {
		return []problem.FieldError{{Pointer: place, Detail: err.Error()}}
	}
	return nil
}

// reasons lists the innermost reasons of a refusal.
func (c *Checker) reasons(e *jsonschema.ValidationError, place string) []problem.FieldError {
	if len(e.Causes) == 0 {
		at := place
		for _, step := range e.InstanceLocation {
			at += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step)
		}
		return []problem.FieldError{{Pointer: at, Detail: e.ErrorKind.LocalizedString(c.printer)}}
	}
	var all []problem.FieldError
	for _, cause := range e.Causes {
		all = append(all, c.reasons(cause, place)...)
	}
	return all
}

// Place is what the pointers into one event of a batch begin with.
func Place(i int) string { return "/" + strconv.Itoa(i) }
