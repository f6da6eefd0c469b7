// Package dsse signs CloudEvents and verifies them as the CloudEvents extension "Verifiable CloudEvents with DSSE"
// says, version 0.1: https://github.com/cloudevents/spec/blob/main/cloudevents/extensions/verifiability.md. Keys are
// Ed25519. The signature covers id, source, type, subject, time in seconds, datacontenttype, dataschema and data, and
// no extension.
//
// The gateway signs the decisions of external systems with it (gateway/internal/eventsigner), and functions accept only
// signed decisions (functions/internal/gatewaysignature). Webhooks have signatures of another format: see
// events/standardwebhooks.
package dsse

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
)

// Extension is the attribute that carries the signature.
const Extension = "dssematerial"

const payloadType = "https://cloudevents.io/verifiability/dsse/v0.1"

// ErrUnsigned is returned for an event without a signature.
var ErrUnsigned = errors.New("the event has no signature")

// envelope is a DSSE envelope: https://github.com/secure-systems-lab/dsse/blob/v1.0.2/envelope.md.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"`
	Sig   []byte `json:"sig"`
}

// material is what an envelope has as its payload.
type material struct {
	Core   []byte   `json:"core"`
	Ext    []byte   `json:"ext,omitempty"`
	Signed []string `json:"signedextattrs,omitempty"`
}

// KeyID names a key in signatures.
func KeyID(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:8])
}

// Sign puts a signature into an event, instead of the one that it may have.
func Sign(e *event.Event, key ed25519.PrivateKey) error {
	payload, err := json.Marshal(material{Core: digest(*e)})
	if err != nil {
		return fmt.Errorf("sign event %s: %w", e.ID(), err)
	}
	public := key.Public().(ed25519.PublicKey) // what the type's documentation promises
	text, err := json.Marshal(envelope{
		PayloadType: payloadType, Payload: payload,
		Signatures: []signature{{KeyID: KeyID(public), Sig: ed25519.Sign(key, encode(payload))}},
	})
	if err != nil {
		return fmt.Errorf("sign event %s: %w", e.ID(), err)
	}
	e.SetExtension(Extension, text)
	return nil
}

// Verify returns nil if one of the keys has signed the event, and ErrUnsigned if the event has no signature. It does not
// verify extensions.
func Verify(e event.Event, keys []ed25519.PublicKey) error {
	text, err := read(e)
	if err != nil {
		return err
	}
	var found envelope
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("the signature is no DSSE envelope: %w", err)
	}
	if found.PayloadType != payloadType {
		return fmt.Errorf("the signature is of payload type %q, not %s", found.PayloadType, payloadType)
	}
	if !signedBy(found, keys) {
		return errors.New("the signature is by no key that is accepted")
	}
	var signed material
	if err := json.Unmarshal(found.Payload, &signed); err != nil {
		return fmt.Errorf("the signed payload is not JSON: %w", err)
	}
	if !bytes.Equal(signed.Core, digest(e)) {
		return errors.New("the event has been changed since it was signed")
	}
	return nil
}

// read returns the envelope in an event, which an intermediary may have made text.
func read(e event.Event) ([]byte, error) {
	switch value := e.Extensions()[Extension].(type) {
	case []byte:
		return value, nil
	case string:
		text, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return nil, fmt.Errorf("the signature is not base64: %w", err)
		}
		return text, nil
	default:
		return nil, ErrUnsigned
	}
}

func signedBy(found envelope, keys []ed25519.PublicKey) bool {
	text := encode(found.Payload)
	for _, key := range keys {
		for _, s := range found.Signatures {
			if s.KeyID == KeyID(key) && ed25519.Verify(key, text, s.Sig) {
				return true
			}
		}
	}
	return false
}

// encode is the pre-authentication encoding of DSSE: https://github.com/secure-systems-lab/dsse/blob/v1.0.2/protocol.md.
func encode(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// digest is the CORE_DIGEST of an event.
func digest(e event.Event) []byte {
	at := ""
	if !e.Time().IsZero() {
		at = e.Time().UTC().Truncate(time.Second).Format(time.RFC3339)
	}
	h := sha256.New()
	for _, text := range []string{e.ID(), e.Source(), e.SpecVersion(), e.Type(), e.DataContentType(), e.DataSchema(), e.Subject(), at, string(e.Data())} {
		sum := sha256.Sum256([]byte(text))
		h.Write(sum[:])
	}
	return h.Sum(nil)
}
