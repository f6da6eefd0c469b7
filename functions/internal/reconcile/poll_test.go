package reconcile_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/stack/functions/internal/coalesce"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestPoll(t *testing.T) {
	t.Parallel()
	silent, loud, failed := reconcile.WaitError{Reason: "WaitingForNode", Requeue: true}, reconcile.WaitError{Reason: "WaitingForMachines"}, errors.New("connection refused")
	for name, tc := range map[string]struct {
		because  string
		timeout  time.Duration
		answers  []error
		want     error
		attempts int
	}{
		"Done":     {"there is nothing to wait for", time.Minute, []error{silent, silent, nil}, nil, 3},
		"Event":    {"an event reports the end of the wait", time.Minute, []error{silent, loud}, loud, 2},
		"Failure":  {"an error ends the wait", time.Minute, []error{failed}, failed, 1},
		"Deadline": {"the deadline has passed", -time.Minute, []error{silent}, silent, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			attempts := 0
			err := reconcile.Poll(t.Context(), time.Now().Add(tc.timeout), func(context.Context) error {
				attempts++
				return tc.answers[attempts-1]
			})
			if !errors.Is(err, tc.want) || attempts != tc.attempts {
				t.Errorf("%s: got %v after %d attempts, want %v after %d", tc.because, err, attempts, tc.want, tc.attempts)
			}
		})
	}
}

func TestMostUrgent(t *testing.T) {
	t.Parallel()
	failed, problem := errors.New("connection refused"), reconcile.UserError{Reason: "NodeReset"}
	for _, tc := range []struct {
		because string
		errs    []error
		want    error
	}{
		{"no error occurred", []error{nil, nil}, nil},
		{"a user error takes precedence", []error{nil, failed, problem}, problem},
		{"the first error takes precedence over a wait", []error{nil, failed, reconcile.WaitError{}}, failed},
	} {
		if got := reconcile.MostUrgent(tc.errs...); !errors.Is(got, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.because, got, tc.want)
		}
	}
}

// TestPollSuperseded polls in a call, and ends as soon as another caller supersedes it.
func TestPollSuperseded(t *testing.T) {
	t.Parallel()
	var calls coalesce.Calls[error]
	polling := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		first := sync.OnceFunc(func() { close(polling) })
		err := calls.Do(t.Context(), "shop", func(ctx context.Context) error {
			return reconcile.Poll(ctx, time.Now().Add(time.Hour), func(context.Context) error {
				first()
				return reconcile.WaitError{Reason: "WaitingForNode", Requeue: true}
			})
		})
		if !reconcile.Retried(err) {
			t.Errorf("the event of the first call has to be delivered again: got %v", err)
		}
	})
	<-polling
	calls.Supersede("shop")
	if err := calls.Do(t.Context(), "shop", func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	group.Wait()
}
