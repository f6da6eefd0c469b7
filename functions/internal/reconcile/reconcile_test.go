package reconcile_test

import (
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestAsUserError(t *testing.T) {
	t.Parallel()
	problem := reconcile.UserError{Reason: "PoolExhausted", Message: "10.0.0.0/24 has no free address: release one"}
	if got, ok := reconcile.AsUserError(fmt.Errorf("reserve: %w", problem)); !ok || got != problem {
		t.Errorf("a wrapped UserError: got %v, %t", got, ok)
	}
	if _, ok := reconcile.AsUserError(errors.New("connection refused")); ok {
		t.Error("any other error is no UserError")
	}
}

func TestSetReady(t *testing.T) {
	t.Parallel()
	var conditions []metav1.Condition
	for _, tc := range []struct {
		because         string
		ready           bool
		reason, message string
		changed         bool
	}{
		{"there was no condition", false, "Waiting", "waiting for the network", true},
		{"the condition is unchanged", false, "Waiting", "waiting for the network", false},
		{"only the message differs", false, "Waiting", "waiting for the network \"shop\"", false},
		{"the reason differs", false, "NoAddress", "the network is full", true},
		{"the status differs", true, "Ready", "the address is allocated", true},
	} {
		got := reconcile.SetReady(&conditions, 1, tc.ready, tc.reason, tc.message)
		want := reconcile.Outcome{Reason: tc.reason, Message: tc.message, Changed: tc.changed}
		if got != want || len(conditions) != 1 || conditions[0].Message != tc.message {
			t.Errorf("%s: got %+v and %v, want %+v", tc.because, got, conditions, want)
		}
	}
}

func TestRetried(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Success":   {"nothing is left to do", nil, false},
		"Request":   {"a request has failed", errors.New("connection refused"), true},
		"UserError": {"the user's change causes an event", fmt.Errorf("reserve: %w", reconcile.UserError{Reason: "PoolExhausted"}), false},
		"Wait":      {"the end of the wait causes an event", reconcile.WaitError{Reason: "WaitingForAddress"}, false},
		"Requeue":   {"the end of the wait causes no event", fmt.Errorf("node: %w", reconcile.WaitError{Reason: "WaitingForNode", Requeue: true}), true},
		"Denied":    {"the settings have to change", fmt.Errorf("connect: %w", &outbound.Denied{Host: "pve"}), false},
		"Own":       {"the error says so, and not the UserError that it wraps", taken{reconcile.UserError{Reason: "VMIDTaken"}}, true},
	} {
		if got := reconcile.Retried(tc.err); got != tc.want {
			t.Errorf("%s: got %t for %v, want %t: %s", name, got, tc.err, tc.want, tc.reason)
		}
	}
}

// taken is a UserError that another attempt may resolve.
type taken struct{ reconcile.UserError }

func (e taken) Unwrap() error { return e.UserError }

func (taken) Retried() bool { return true }
