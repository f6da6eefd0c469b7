// Package standardwebhooks signs messages and verifies their signatures as Standard Webhooks specify
// (https://www.standardwebhooks.com, version v1: HMAC-SHA256 over id, timestamp and body). The gateway signs the webhooks that
// it sends (gateway/internal/webhook), and verifies the webhooks that it receives (gateway/internal/ingest). Decisions inside the
// cluster have signatures of another format: see events/dsse.
package standardwebhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Headers of Standard Webhooks.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// tolerance bounds the difference between a message's timestamp and the local clock. It limits replays.
const tolerance = 5 * time.Minute

// Secret is the key that sender and receiver share.
type Secret []byte

// ParseSecret reads a secret in the form of Standard Webhooks: the prefix whsec_, which may be missing, and 24 to 64 bytes
// in base64. The error says what to write.
func ParseSecret(text string) (Secret, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	if err != nil {
		return nil, errors.New("write whsec_ and then base64")
	}
	if len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("the secret has %d bytes: it needs 24 to 64", len(key))
	}
	return key, nil
}

// Sign returns the value of HeaderSignature for a message that is sent at a time. id must not contain a full stop, because
// the signed text separates its parts by full stops.
func (s Secret) Sign(id string, at time.Time, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(s.sum(id, strconv.FormatInt(at.Unix(), 10), body))
}

func (s Secret) sum(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, s)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// Verify checks the values of the three headers of a message: one of the signatures must be valid, and the timestamp must be
// within five minutes of now. The comparison takes constant time.
func (s Secret) Verify(id, timestamp, signatures string, body []byte, now time.Time) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" {
		return errors.New("set the headers webhook-id and webhook-timestamp, which is in seconds")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return errors.New("webhook-timestamp is more than five minutes away from the gateway's clock: sign the message again at each attempt, and correct the clock of the sender")
	}
	want := s.sum(id, timestamp, body)
	valid := false
	for signature := range strings.FieldsSeq(signatures) {
		encoded, ok := strings.CutPrefix(signature, "v1,")
		if !ok {
			continue
		}
		given, err := base64.StdEncoding.DecodeString(encoded)
		valid = (err == nil && hmac.Equal(given, want)) || valid
	}
	if !valid {
		return errors.New("webhook-signature does not belong to this message: sign webhook-id, webhook-timestamp and the body as they are sent, with the secret that the gateway knows")
	}
	return nil
}
