package events_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/vitistack/stack/events"
)

// schema returns the compiled schema of a type, with format checks.
func schema(t *testing.T, eventType string) *jsonschema.Schema {
	t.Helper()
	file, err := events.Schemas.ReadFile("schemas/" + eventType + ".json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(eventType, doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(eventType)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestExamples compares schema, example and Go type of each event type.
func TestExamples(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(events.Examples, "examples/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		eventType := strings.TrimSuffix(strings.TrimPrefix(path, "examples/"), ".json")
		t.Run(eventType, func(t *testing.T) {
			t.Parallel()
			file, err := events.Examples.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var e event.Event
			if err := json.Unmarshal(file, &e); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(events.Types, eventType) {
				t.Errorf("events.Types lacks %s", eventType)
			}
			if e.Type() != eventType || e.Validate() != nil {
				t.Errorf("want a valid event of type %s, got %s: %v", eventType, e.Type(), e.Validate())
			}
			data, known := events.NewData(eventType)
			if !known {
				t.Fatal("NewData does not know the type")
			}
			decoder := json.NewDecoder(bytes.NewReader(e.Data()))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(data); err != nil {
				t.Fatalf("the Go type cannot decode the example: %v", err)
			}
			encoded, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			var want, got any
			if json.Unmarshal(e.Data(), &want) != nil || json.Unmarshal(encoded, &got) != nil {
				t.Fatal("data is no JSON")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the Go type changes the example (-want +got):\n%s", diff)
			}
			if err := schema(t, eventType).Validate(got); err != nil {
				t.Errorf("the schema rejects the example: %v", err)
			}
		})
	}
	schemas, err := fs.Glob(events.Schemas, "schemas/*.json")
	if err != nil || len(schemas) != len(files) {
		t.Errorf("%d schemas and %d examples: each needs the other (%v)", len(schemas), len(files), err)
	}
}

func TestSchemasRefuse(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		eventType string
		data      string
	}{
		"NoUID":      {reason: "an answer requires the UID of its request", eventType: events.TypeNetworkProvisioned, data: `{"ipv4Prefix":"10.0.0.0/24"}`},
		"NoPrefix":   {reason: "a segment requires a prefix", eventType: events.TypeNetworkProvisioned, data: `{"uid":"u"}`},
		"VLAN":       {reason: "4095 is reserved", eventType: events.TypeNetworkProvisioned, data: `{"uid":"u","ipv4Prefix":"10.0.0.0/24","vlanId":4095}`},
		"Gateway":    {reason: "a gateway is an address", eventType: events.TypeNetworkProvisioned, data: `{"uid":"u","ipv4Prefix":"10.0.0.0/24","ipv4Gateway":"gw"}`},
		"Unknown":    {reason: "a misspelt field must be an error", eventType: events.TypeNetworkProvisioned, data: `{"uid":"u","ipv4Prefix":"10.0.0.0/24","vlan":7}`},
		"Generation": {reason: "an approval requires a generation", eventType: events.TypeWorkorderApproved, data: `{"uid":"u","by":"me"}`},
		"Reason":     {reason: "a reason is one word", eventType: events.TypeNetworkFailed, data: `{"uid":"u","reason":"no free","message":"m"}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc, err := jsonschema.UnmarshalJSON(strings.NewReader(tc.data))
			if err != nil {
				t.Fatal(err)
			}
			if schema(t, tc.eventType).Validate(doc) == nil {
				t.Errorf("%s: accepted %s", tc.reason, tc.data)
			}
		})
	}
}
