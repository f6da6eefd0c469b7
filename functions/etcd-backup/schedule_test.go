package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestMakePlan(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	at := func(day, hour int) time.Time { return time.Date(2026, 1, day, hour, 0, 0, 0, time.UTC) }
	cases := map[string]struct {
		reason   string
		schedule string
		last     time.Time
		suspend  bool
		now      time.Time
		due      time.Time
		next     time.Time
		why      string
	}{
		"Early":      {reason: "the time of the schedule has not come", schedule: "0 4 * * *", now: made.Add(time.Minute), next: at(2, 4)},
		"Due":        {reason: "the time of the schedule has come", schedule: "0 4 * * *", now: at(2, 4), due: at(2, 4), next: at(3, 4)},
		"Late":       {reason: "a retry takes the same snapshot", schedule: "0 4 * * *", now: at(2, 5), due: at(2, 4), next: at(3, 4)},
		"Missed":     {reason: "one snapshot makes up for all that were missed", schedule: "0 4 * * *", last: at(2, 4), now: at(9, 5), due: at(9, 4), next: at(10, 4)},
		"Taken":      {reason: "the snapshot was taken", schedule: "0 4 * * *", last: at(2, 4), now: at(2, 5), next: at(3, 4)},
		"Every":      {reason: "an interval has passed", schedule: "@every 6h", last: at(2, 4), now: at(2, 11), due: at(2, 10), next: at(2, 16)},
		"EverySoFar": {reason: "more times were missed than can be counted", schedule: "@every 1s", last: at(2, 4), now: at(9, 4), due: at(9, 4), next: at(9, 4).Add(time.Second)},
		"TooOften":   {reason: "an interval of seconds is a minute", schedule: "@every 1s", last: at(2, 4), now: at(2, 4).Add(2 * time.Second), next: at(2, 4).Add(time.Minute)},
		"Once":       {reason: "there is no schedule", now: at(2, 5), due: made},
		"OnceTaken":  {reason: "the snapshot was taken", last: made, now: at(2, 5)},
		"Suspended":  {reason: "spec.suspend is set", schedule: "0 4 * * *", suspend: true, now: at(9, 5)},
		"NoCron":     {reason: "the schedule is invalid", schedule: "61 * * * *", now: at(2, 5), why: "InvalidSchedule"},
		"NeverEver":  {reason: "no year has such a day", schedule: "0 0 31 2 *", now: at(2, 5), why: "InvalidSchedule"},
		"Never":      {reason: "no year has such a day", schedule: "0 0 30 2 *", now: at(2, 5), why: "InvalidSchedule"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &v1alpha1.EtcdBackup{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
			b.Spec.Schedule, b.Spec.Suspend = tc.schedule, tc.suspend
			if !tc.last.IsZero() {
				last := metav1.NewTime(tc.last)
				b.Status.LastBackupTime = &last
			}
			p, err := planSnapshot(b, nil, tc.now)
			var f reconcile.UserError
			if errors.As(err, &f); f.Reason != tc.why {
				t.Fatalf("%s: got %v, want %q", tc.reason, err, tc.why)
			}
			if tc.why != "" && !strings.Contains(f.Message, "or @daily, or @every 6h") {
				t.Errorf("%s: the message does not name a valid schedule: %s", tc.reason, f.Message)
			}
			if !p.due.Equal(tc.due) || !p.next.Equal(tc.next) {
				t.Errorf("%s: due %s and next %s, want %s and %s", tc.reason, p.due, p.next, tc.due, tc.next)
			}
		})
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("0123456789abcdef"), 3*pageSize/16)
	sum := sha256.Sum256(body)
	whole := append(bytes.Clone(body), sum[:]...)
	changed := bytes.Clone(whole)
	changed[100]++
	cases := map[string]struct {
		reason  string
		content []byte
		want    error
	}{
		"Whole":   {"it ends in its hash", whole, nil},
		"Changed": {"one byte is changed", changed, errDamaged},
		"Cut":     {"the end is missing", whole[:len(whole)-1], errDamaged},
		"NoHash":  {"a copy of a data directory has no hash", body, errDamaged},
		"Empty":   {"it is empty", nil, errDamaged},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for reader, from := range map[string]io.Reader{"at once": bytes.NewReader(tc.content), "by byte": iotest.OneByteReader(bytes.NewReader(tc.content))} {
				got, err := io.ReadAll(newChecksumReader(from))
				if !errors.Is(err, tc.want) || !bytes.Equal(got, tc.content) {
					t.Errorf("%s, %s: got %d bytes, %v", tc.reason, reader, len(got), err)
				}
			}
		})
	}
}
