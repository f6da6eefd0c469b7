package heartbeat

import (
	"time"

	"github.com/robfig/cron/v3"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// tolerated is the number of intervals without a heartbeat after which a dependency is unhealthy.
const tolerated = 3

// decide decides the status of a dependency whose heartbeats follow a schedule. last is the time of the last one, or zero, and
// expected the time since which heartbeats can arrive:
//
//	heard within three intervals                    healthy
//	silent, and expected for less than that time    unknown, because the silence shows nothing
//	silent for longer                               unhealthy
func decide(schedule cron.Schedule, last, expected, now time.Time) string {
	switch {
	case !last.IsZero() && !now.After(limit(schedule, last)):
		return inventory.Healthy
	case !now.After(limit(schedule, expected)):
		return inventory.Unknown
	default:
		return inventory.Unhealthy
	}
}

// limit returns the time until which the heartbeats after a time may be missing: three intervals, and not before the third time of
// the schedule, whose intervals may differ.
func limit(schedule cron.Schedule, after time.Time) time.Time {
	first := schedule.Next(after)
	interval := schedule.Next(first).Sub(first)
	end := after.Add(tolerated * interval)
	next := after
	for range tolerated {
		next = schedule.Next(next)
	}
	if next.After(end) {
		return next
	}
	return end
}
