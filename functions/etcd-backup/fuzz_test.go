package main

import (
	"bytes"
	"io"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// FuzzSchedule parses any schedule, also one that the API server rejects. A snapshot is never due in
// the future.
func FuzzSchedule(f *testing.F) {
	for _, text := range []string{"0 2 * * *", "@every 6h", "@daily", "*/5 1-4,7 1 */2 MON-FRI", "TZ=", "CRON_TZ=UTC 0 0 * * *", "0 0 30 2 *", "@every 1ns", "@every -1s", "*/0 * * * *"} {
		f.Add(text, int64(86400))
	}
	f.Fuzz(func(t *testing.T, text string, age int64) {
		if age < 0 || age > 10*365*86400 {
			return
		}
		now := time.Date(2026, 3, 1, 2, 3, 4, 0, time.UTC)
		b := &v1alpha1.EtcdBackup{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(age) * time.Second))}}
		b.Spec.Schedule = text
		p, err := planSnapshot(b, nil, now)
		if err == nil && (p.due.After(now) || (text != "" && !p.next.IsZero() && !p.next.After(p.due))) {
			t.Errorf("%q is due %s, and then %s, at %s", text, p.due, p.next, now)
		}
	})
}

// FuzzSnapshot reads any stream. A stream without an error ends in its own hash.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte{}, 1)
	f.Add(make([]byte, 512+32), 7)
	f.Fuzz(func(t *testing.T, data []byte, step int) {
		v := newChecksumReader(&stepped{data, max(1, step%4096)})
		got, err := io.ReadAll(v)
		if !bytes.Equal(got, data) {
			t.Error("the copied stream differs")
		}
		if err == nil && !v.isComplete() {
			t.Error("a damaged snapshot is accepted")
		}
	})
}

// stepped returns a few bytes at a time.
type stepped struct {
	left []byte
	step int
}

func (s *stepped) Read(p []byte) (int, error) {
	if len(s.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.step)], s.left)
	s.left = s.left[n:]
	return n, nil
}
