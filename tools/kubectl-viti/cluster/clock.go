package cluster

import (
	"net/http"
	"sync/atomic"
	"time"
)

// clockTolerance is how far the clocks of the user and of the API server may differ: answers have whole seconds, and need a while.
const clockTolerance = 3 * time.Second

// clock knows how far the clock of the API server is ahead of the user's, from the last answer.
type clock struct{ ahead atomic.Int64 }

// Now returns the time of the API server, as far as it has answered. Ages of objects by the wrong clock of a user would show each wait as too long,
// or none.
func (c *Connection) Now() time.Time {
	if c.clock == nil {
		return time.Now()
	}
	return time.Now().Add(time.Duration(c.clock.ahead.Load()))
}

func (c *clock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if at, parseErr := http.ParseTime(response.Header.Get("Date")); parseErr == nil {
			ahead := time.Until(at)
			if ahead.Abs() < clockTolerance {
				ahead = 0
			}
			c.ahead.Store(int64(ahead))
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
