package dsse

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/vitistack/stack/events"
)

// TestDigest compares with test vector 5 of the specification, whose data is given in bytes.
func TestDigest(t *testing.T) {
	t.Parallel()
	e := event.New()
	e.SetID("1")
	e.SetSource("example/uri")
	e.SetType("example.type.binary")
	if err := e.SetData("application/octet-stream", []byte("\U0001f921")); err != nil {
		t.Fatal(err)
	}
	if got, want := base64.StdEncoding.EncodeToString(digest(e)), "qCSeiZkS+hH9WiClfq6plfqYNVy2kvxWRfoBrLEzoDk="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	key, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicOf(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

func approval(t *testing.T) event.Event {
	t.Helper()
	e := event.New()
	e.SetID("4711")
	e.SetSource("https://tickets.example.com")
	e.SetType(events.TypeWorkorderApproved)
	e.SetSubject("/apis/vitistack.io/v1alpha1/namespaces/team/kubernetesclusters/shop")
	e.SetTime(time.Date(2026, 11, 23, 12, 0, 0, 123456789, time.UTC))
	if err := e.SetData(event.ApplicationJSON, []byte(`{ "uid": "u", "comment": "<fine> & good" }`)); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestVerify changes a signed event in every relevant way.
func TestVerify(t *testing.T) {
	t.Parallel()
	key, other := newKey(t), newKey(t)
	edited := func(edit func(*envelope)) func(*event.Event) {
		return func(e *event.Event) {
			var found envelope
			if err := json.Unmarshal(e.Extensions()[Extension].([]byte), &found); err != nil {
				t.Fatal(err)
			}
			edit(&found)
			text, err := json.Marshal(found)
			if err != nil {
				t.Fatal(err)
			}
			e.SetExtension(Extension, text)
		}
	}
	for _, tc := range []struct {
		name, reason string
		edit         func(*event.Event)
		keys         []ed25519.PublicKey
		want         string // empty if it is accepted
	}{
		{"Signed", "the event is unchanged", nil, nil, ""},
		{"Rotated", "an older key is still accepted", nil, []ed25519.PublicKey{publicOf(other), publicOf(key)}, ""},
		{"Traced", "Brokers add extensions", func(e *event.Event) { e.SetExtension("knativearrivaltime", time.Now()) }, nil, ""},
		{"Zone", "some transports lose the time zone", func(e *event.Event) { e.SetTime(e.Time().In(time.FixedZone("", 7200))) }, nil, ""},
		{"Rounded", "some transports lose fractions of seconds", func(e *event.Event) { e.SetTime(e.Time().Truncate(time.Second)) }, nil, ""},
		{"Revoked", "the key is no longer accepted", nil, []ed25519.PublicKey{publicOf(other)}, "by no key"},
		{"NoKeys", "without keys nothing is accepted", nil, []ed25519.PublicKey{}, "by no key"},
		{"Unsigned", "an unauthenticated sender can send an event", func(e *event.Event) { e.SetExtension(Extension, nil) }, nil, ErrUnsigned.Error()},
		{"Data", "another decision", func(e *event.Event) { e.DataEncoded = []byte(`{"uid":"v"}`) }, nil, "changed"},
		{"Type", "a rejection is changed into an approval", func(e *event.Event) { e.SetType(events.TypeWorkorderRejected) }, nil, "changed"},
		{"Subject", "the subject is another cluster", func(e *event.Event) { e.SetSubject("/x") }, nil, "changed"},
		{"Source", "the source is another system", func(e *event.Event) { e.SetSource("/x") }, nil, "changed"},
		{"ID", "a duplicate gets another ID", func(e *event.Event) { e.SetID("4712") }, nil, "changed"},
		{"Time", "an old event gets another time", func(e *event.Event) { e.SetTime(e.Time().Add(time.Second)) }, nil, "changed"},
		{"NoTime", "the time is removed", func(e *event.Event) { e.SetTime(time.Time{}) }, nil, "changed"},
		{"NotBase64", "rubbish", func(e *event.Event) { e.SetExtension(Extension, "!") }, nil, "base64"},
		{"NotJSON", "rubbish", func(e *event.Event) { e.SetExtension(Extension, []byte("{")) }, nil, "envelope"},
		{"PayloadType", "the key has signed something else", edited(func(v *envelope) { v.PayloadType = "application/json" }), nil, "payload type"},
		{"Payload", "the digest belongs to another event", edited(func(v *envelope) { v.Payload = []byte(`{"core":"AA=="}`) }), nil, "by no key"},
		{"NoSignature", "an envelope without signatures", edited(func(v *envelope) { v.Signatures = nil }), nil, "by no key"},
		{"KeyID", "the key ID belongs to another key", edited(func(v *envelope) { v.Signatures[0].KeyID = KeyID(publicOf(other)) }), []ed25519.PublicKey{publicOf(key), publicOf(other)}, "by no key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := approval(t)
			if err := Sign(&e, key); err != nil {
				t.Fatal(err)
			}
			if tc.edit != nil {
				tc.edit(&e)
			}
			keys := tc.keys
			if keys == nil {
				keys = []ed25519.PublicKey{publicOf(key)}
			}
			err := Verify(e, keys)
			if (tc.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
			}
			if tc.name == "Unsigned" && !errors.Is(err, ErrUnsigned) {
				t.Errorf("%v is not ErrUnsigned", err)
			}
		})
	}
}

// TestTransport verifies an event after HTTP in binary mode, which keeps the bytes of the data.
func TestTransport(t *testing.T) {
	t.Parallel()
	key, e := newKey(t), approval(t)
	if err := Sign(&e, key); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://broker", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cehttp.WriteRequest(t.Context(), binding.ToMessage(&e), req); err != nil {
		t.Fatal(err)
	}
	got, err := binding.ToEvent(context.Background(), cehttp.NewMessageFromHttpRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(*got, []ed25519.PublicKey{publicOf(key)}); err != nil {
		t.Error(err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	private, err := FormatPrivate(key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParsePrivate(private); err != nil || !got.Equal(key) {
		t.Errorf("the private key changed: %v", err)
	}
	public, err := FormatPublic(publicOf(key))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParsePublic(public); err != nil || !got.Equal(publicOf(key)) {
		t.Errorf("the public key changed: %v", err)
	}
	for _, text := range []string{"", "x", string(public)} {
		if _, err := ParsePrivate([]byte(text)); err == nil || strings.Contains(err.Error(), "MC") {
			t.Errorf("%q is accepted as a private key: %v", text, err)
		}
	}
	if _, err := ParsePublic(private); err == nil {
		t.Error("a private key is accepted as a public one")
	}
}
