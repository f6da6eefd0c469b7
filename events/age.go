package events

import (
	"math"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
)

// ArrivalTime is the extension in which a Knative Broker says when it received an event. It stays the same when the
// event is delivered again.
const ArrivalTime = "knativearrivaltime"

// Age returns how long ago the Broker received an event. An event without ArrivalTime, which did not come from a
// Broker, is older than any other.
func Age(e event.Event, now time.Time) time.Duration {
	arrived, err := types.ToTime(e.Extensions()[ArrivalTime])
	if err != nil {
		return math.MaxInt64
	}
	return now.Sub(arrived)
}
