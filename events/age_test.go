package events

import (
	"math"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
)

func TestAge(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name, reason string
		arrived      any
		want         time.Duration
	}{
		{"InProcess", "an event in the process has a time value", now.Add(-time.Minute), time.Minute},
		{"ByHTTP", "a header is a text", "2026-11-23T11:59:30.5Z", 29500 * time.Millisecond},
		{"Ahead", "the Broker's clock may be ahead", now.Add(time.Second), -time.Second},
		{"NoTime", "an invalid time is ignored", "yesterday", math.MaxInt64},
		{"Absent", "some Brokers send no time", nil, math.MaxInt64},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := event.New()
			if tc.arrived != nil {
				e.SetExtension(ArrivalTime, tc.arrived)
			}
			if got := Age(e, now); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
