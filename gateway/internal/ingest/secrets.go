package ingest

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/gateway/internal/filewatch"
)

// secrets holds the current shared secrets of external systems.
type secrets struct {
	all atomic.Pointer[[]standardwebhooks.Secret]
}

// load replaces the secrets by those of the configuration and those of a file. An invalid secret is an error and changes nothing.
func (s *secrets) load(configured []string, file []byte) error {
	var all []standardwebhooks.Secret
	for i, text := range append(append([]string(nil), configured...), filewatch.Lines(file)...) {
		secret, err := standardwebhooks.ParseSecret(text)
		if err != nil {
			return fmt.Errorf("secret %d: %w", i+1, err)
		}
		all = append(all, secret)
	}
	s.all.Store(&all)
	return nil
}

// verify checks that a request is signed with one of the secrets. The error says what is wrong with the signature.
func (s *secrets) verify(c *fiber.Ctx) error {
	id, at, signature := c.Get(standardwebhooks.HeaderID), c.Get(standardwebhooks.HeaderTimestamp), c.Get(standardwebhooks.HeaderSignature)
	valid := false
	var last error
	for _, secret := range *s.all.Load() {
		err := secret.Verify(id, at, signature, c.Request().Body(), time.Now())
		if err != nil {
			last = err
		}
		valid = err == nil || valid
	}
	if valid {
		return nil
	}
	return cmp.Or(last, errNoSecrets)
}

// errNoSecrets is the error of a signed request if the gateway knows no secret.
var errNoSecrets = errors.New("the gateway knows no secret: set ingest.secrets or ingest.secretsFile")
