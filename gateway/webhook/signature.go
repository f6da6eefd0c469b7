// Package webhook signs events, checks the signatures of others, and delivers
// what the history has to tell, until it is taken or can no longer be.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Headers of Standard Webhooks.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// tolerance is how far a signature's time may be from ours. What is older could
// be sent again by somebody who has listened.
const tolerance = 5 * time.Minute

// Secret is a key that both sides know.
type Secret []byte

// ParseSecret reads a secret as Standard Webhooks write it: whsec_ and 24 to 64
// bytes in base64.
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

// SigningKey is the secret of an endpoint, which may be replaced while deliveries use it.
type SigningKey struct {
	// File is where the secret is read again when it changes, or empty.
	File   string
	secret atomic.Pointer[Secret]
}

// NewSigningKey returns a key with a secret in the form that ParseSecret reads.
func NewSigningKey(text, file string) (*SigningKey, error) {
	k := &SigningKey{File: file}
	return k, k.Replace(text)
}

// Replace has the deliveries from now on signed with another secret. An invalid one is an
// error, and changes nothing.
func (k *SigningKey) Replace(text string) error {
	secret, err := ParseSecret(strings.TrimSpace(text))
	if err != nil {
		return err
	}
	k.secret.Store(&secret)
	return nil
}

// Sign is the signature of a message by the present secret.
func (k *SigningKey) Sign(id string, at time.Time, body []byte) string {
	return (*k.secret.Load()).Sign(id, at, body)
}

// Sign is the signature of a message.
func (s Secret) Sign(id string, at time.Time, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(s.sum(id, strconv.FormatInt(at.Unix(), 10), body))
}

func (s Secret) sum(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, s)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return mac.Sum(nil)
}

// Verify checks a message's signatures, of which one has to be right, and its
// time. It takes the same time however wrong they are.
func (s Secret) Verify(id, timestamp, signatures string, body []byte, now time.Time) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" {
		return errors.New("webhook-id and webhook-timestamp have to be there, the latter in seconds")
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return errors.New("webhook-timestamp is more than five minutes away from the gateway's clock")
	}
	want := s.sum(id, timestamp, body)
	right := false
	for signature := range strings.FieldsSeq(signatures) {
		encoded, ok := strings.CutPrefix(signature, "v1,")
		if !ok {
			continue
		}
		given, err := base64.StdEncoding.DecodeString(encoded)
		right = (err == nil && hmac.Equal(given, want)) || right
	}
	if !right {
		return errors.New("webhook-signature does not belong to this message")
	}
	return nil
}
