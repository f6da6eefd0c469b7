package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/vitistack/stack/functions/internal/coalesce"
)

// Pauses between two attempts of Poll. The first is doubled up to the longest.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

// Poll calls attempt, at once and then with growing pauses, until it returns something other
// than a WaitError with Requeue set, until the next attempt would be after the deadline, until
// ctx ends, or until the call of coalesce.Calls that ctx belongs to is superseded. It returns what
// the last attempt has returned. A deadline in the past gives one attempt.
func Poll(ctx context.Context, deadline time.Time, attempt func(context.Context) error) error {
	pause := firstPause
	for {
		err := attempt(ctx)
		var wait WaitError
		if !errors.As(err, &wait) || !wait.Requeue || time.Now().Add(pause).After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-coalesce.Superseded(ctx):
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}
