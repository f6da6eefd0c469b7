package webhook

import (
	"net/http"
	"testing"
	"time"
)

// TestRetryAfter parses what an endpoint answers to have deliveries wait (RFC 9110, 10.2.3).
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		reason, header string
		want           time.Duration
	}{
		{"there is no header", "", 0},
		{"seconds", "90", 90 * time.Second},
		{"more than the longest delay", "86400", longestDelay},
		{"more than a duration holds", "9223372036854775807", longestDelay},
		{"a negative number", "-5", 0},
		{"a date", now.Add(5 * time.Minute).Format(http.TimeFormat), 5 * time.Minute},
		{"a date in the far future", now.Add(24 * time.Hour).Format(http.TimeFormat), longestDelay},
		{"a date in the past", now.Add(-time.Hour).Format(http.TimeFormat), 0},
		{"neither", "soon", 0},
	} {
		if got := retryAfter(tc.header, now); got != tc.want {
			t.Errorf("%s: %q is %s, want %s", tc.reason, tc.header, got, tc.want)
		}
	}
}
