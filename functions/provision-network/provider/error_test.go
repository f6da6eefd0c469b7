package provider

import (
	"testing"
	"time"
)

// TestDelay checks the delay until the next request to a provider.
func TestDelay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		err     Error
		lasting time.Duration
		want    time.Duration
	}{
		"First":   {reason: "most errors are short", err: Error{}, want: minDelay},
		"Longer":  {reason: "a lasting error is retried less and less often", err: Error{}, lasting: 20 * time.Second, want: 20 * time.Second},
		"Longest": {reason: "the delay is bounded", err: Error{}, lasting: time.Hour, want: MaxDelay},
		"Asked":   {reason: "the source's own delay takes precedence", err: Error{RetryAfter: time.Minute}, lasting: time.Second, want: time.Minute},
		"Patient": {reason: "the source's own delay takes precedence, even if it is hours", err: Error{RetryAfter: time.Hour}, lasting: time.Second, want: time.Hour},
		"Working": {reason: "the end of a source's work is seen soon, however long the outage before", err: Working("", 0), lasting: time.Hour, want: MaxWorkDelay},
		"Quick":   {reason: "most work is short", err: Working("", 0), lasting: 2 * time.Second, want: 2 * time.Second},
		"Slow":    {reason: "the source knows how long its work takes", err: Working("", time.Hour), lasting: time.Second, want: time.Hour},
		"Wrong":   {reason: "an invalid response may be the only one", err: PermanentError("SourceUnexpectedAnswer", "x"), want: minDelay},
		"Broken":  {reason: "a server that stays wrong is asked rarely", err: PermanentError("SourceUnexpectedAnswer", "x"), lasting: time.Hour, want: MaxDelay},
		"Final":   {reason: "a permanent error waits for a user", err: Error{Permanent: true}, want: MaxDelay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.err.Delay(tc.lasting); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
