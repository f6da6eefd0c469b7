package webhook

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/vitistack/stack/events/standardwebhooks"
)

// SigningKey holds the secret of an endpoint. The secret can be replaced while deliveries use it.
type SigningKey struct {
	// File is the path that the secret is reloaded from when the file changes. It is empty for a secret from a variable.
	File   string
	secret atomic.Pointer[standardwebhooks.Secret]
}

// NewSigningKey returns a key with a secret in the form that standardwebhooks.ParseSecret reads. An invalid secret is an error.
func NewSigningKey(text, file string) (*SigningKey, error) {
	k := &SigningKey{File: file}
	return k, k.Replace(text)
}

// Replace sets the secret that signs all later deliveries. An invalid secret is an error and changes nothing.
func (k *SigningKey) Replace(text string) error {
	secret, err := standardwebhooks.ParseSecret(strings.TrimSpace(text))
	if err != nil {
		return err
	}
	k.secret.Store(&secret)
	return nil
}

// Sign returns the signature of a message with the current secret.
func (k *SigningKey) Sign(id string, at time.Time, body []byte) string {
	return (*k.secret.Load()).Sign(id, at, body)
}
