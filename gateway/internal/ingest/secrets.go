package ingest

import (
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

// verify reports whether a request is signed with one of the secrets.
func (s *secrets) verify(c *fiber.Ctx) bool {
	id, at, signature := c.Get(standardwebhooks.HeaderID), c.Get(standardwebhooks.HeaderTimestamp), c.Get(standardwebhooks.HeaderSignature)
	valid := false
	for _, secret := range *s.all.Load() {
		valid = secret.Verify(id, at, signature, c.Request().Body(), time.Now()) == nil || valid
	}
	return valid
}
