package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestDrainFailure(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	minute := v1alpha1.MachineProperties{DrainTimeout: &metav1.Duration{Duration: time.Minute}}
	cases := map[string]struct {
		reason     string
		properties v1alpha1.MachineProperties
		since, now time.Time
		want       string
	}{
		"Within":    {"the time is not over", minute, began, began.Add(time.Minute), ""},
		"Over":      {"the time of the pool is over", minute, began, began.Add(time.Minute + 1), "its pods were not evicted within 1m0s: default/db stays"},
		"Default":   {"a pool without a time has an hour", v1alpha1.MachineProperties{}, began, began.Add(time.Hour), ""},
		"DefaultIs": {"the hour is over", v1alpha1.MachineProperties{}, began, began.Add(time.Hour + 1), "its pods were not evicted within 1h0m0s: default/db stays"},
		"NotBegun":  {"a drain that has not begun cannot time out", minute, time.Time{}, began, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := DrainFailure(tc.properties, tc.since, tc.now, "default/db stays"); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
