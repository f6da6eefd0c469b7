package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// plan says when snapshots are taken.
type plan struct {
	// due is the due time of the snapshot to take now, or zero if none is due.
	due time.Time
	// next is when the next one is, zero where there is none.
	next time.Time
}

// planSnapshot decides when a backup is due:
//
//	suspended                           never
//	no schedule, none taken             once, now
//	no schedule, one taken              never again
//	no schedule, the one taken is of an
//	earlier cluster of the same name    once, now
//	a time has come since the last one  now, once for all that were missed
//	otherwise                           at the next time
//
// kc is the cluster, or nil if it does not exist. All times are UTC. The due time names the snapshot, so that a retry writes the same file.
func planSnapshot(b *v1alpha1.EtcdBackup, kc *v1alpha1.KubernetesCluster, now time.Time) (plan, error) {
	last := b.CreationTimestamp.UTC()
	if b.Status.LastBackupTime != nil {
		last = b.Status.LastBackupTime.UTC()
	}
	switch {
	case b.Spec.Suspend:
		return plan{}, nil
	case b.Spec.Schedule == "" && b.Status.LastBackupTime == nil:
		return plan{due: last}, nil
	case b.Spec.Schedule == "" && hasSnapshotOfOther(b, kc):
		return plan{due: kc.CreationTimestamp.UTC()}, nil
	case b.Spec.Schedule == "":
		return plan{}, nil
	}
	schedule, err := parseSchedule(b.Spec.Schedule)
	if err != nil {
		return plan{}, reconcile.UserError{Reason: "InvalidSchedule", Message: fmt.Sprintf("schedule %q: %v; write five fields such as 0 2 * * *, or @daily, or @every 6h", b.Spec.Schedule, err)}
	}
	first := schedule.Next(last)
	if first.IsZero() {
		return plan{}, reconcile.UserError{Reason: "InvalidSchedule", Message: fmt.Sprintf("schedule %q never matches (for example 30 February): write a day that each month has, such as 0 2 28 * *, or @daily, or @every 6h", b.Spec.Schedule)}
	}
	if earliest := last.Add(minInterval); b.Status.LastBackupTime != nil && first.Before(earliest) {
		first = schedule.Next(earliest.Add(-time.Nanosecond))
	}
	if first.After(now) {
		return plan{next: first}, nil
	}
	due := lastDue(schedule, first, now.UTC())
	return plan{due: due, next: schedule.Next(due)}, nil
}

// parseSchedule reads a schedule. It refuses a time zone, because all times are UTC, and
// because the library panics on a zone without fields.
func parseSchedule(text string) (cron.Schedule, error) {
	if strings.Contains(text, "TZ=") {
		return nil, errors.New("all times are UTC: leave out the time zone")
	}
	return cron.ParseStandard(text)
}

// minInterval is the least time between two snapshots, however short the interval of a schedule is.
const minInterval = time.Minute

// mostMissed bounds how many missed times are counted one by one.
const mostMissed = 10000

// lastDue returns the last time of a schedule that is not after now. first is one of its
// times.
func lastDue(schedule cron.Schedule, first, now time.Time) time.Time {
	due := first
	for range mostMissed {
		next := schedule.Next(due)
		if next.IsZero() || next.After(now) {
			return due
		}
		due = next
	}
	return now.Truncate(time.Minute)
}
