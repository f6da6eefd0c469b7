package provider

import (
	"testing"
	"time"
)

// TestDelay is how long a provider is left alone.
func TestDelay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		err     Error
		lasting time.Duration
		want    time.Duration
	}{
		"First":   {reason: "most faults are short", err: Error{}, want: minDelay},
		"Longer":  {reason: "what lasts is asked less and less often", err: Error{}, lasting: 20 * time.Second, want: 20 * time.Second},
		"Longest": {reason: "it is never forgotten", err: Error{}, lasting: time.Hour, want: MaxDelay},
		"Asked":   {reason: "the source knows best", err: Error{RetryAfter: time.Minute}, lasting: time.Second, want: time.Minute},
		"Patient": {reason: "the source knows best, even for hours", err: Error{RetryAfter: time.Hour}, lasting: time.Second, want: time.Hour},
		"Working": {reason: "the end of a source's work is seen soon, however long it was out before", err: Working("", 0), lasting: time.Hour, want: MaxWorkDelay},
		"Quick":   {reason: "most work is short", err: Working("", 0), lasting: 2 * time.Second, want: 2 * time.Second},
		"Slow":    {reason: "the source knows how long its work takes", err: Working("", time.Hour), lasting: time.Second, want: time.Hour},
		"Final":   {reason: "people take their time", err: Error{Permanent: true}, want: MaxDelay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.err.Delay(tc.lasting); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
