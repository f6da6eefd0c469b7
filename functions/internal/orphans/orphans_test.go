package orphans

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func orphan(id, uid string, age time.Duration, confirmed bool) v1alpha1.Orphan {
	return v1alpha1.Orphan{ID: id, UID: uid, FirstSeen: metav1.NewTime(now.Add(-age)), Confirmed: confirmed}
}

func TestConfirm(t *testing.T) {
	t.Parallel()
	at := func(id, uid string) v1alpha1.Orphan { return v1alpha1.Orphan{ID: id, UID: uid} }
	for name, tc := range map[string]struct {
		reason             string
		known, found, want []v1alpha1.Orphan
	}{
		"First":     {"its Machine may be created at this moment", nil, []v1alpha1.Orphan{at("a", "1")}, []v1alpha1.Orphan{orphan("a", "1", 0, false)}},
		"Soon":      {"two checks within the grace period confirm nothing", []v1alpha1.Orphan{orphan("a", "1", time.Minute, false)}, []v1alpha1.Orphan{at("a", "1")}, []v1alpha1.Orphan{orphan("a", "1", time.Minute, false)}},
		"Again":     {"a check after the grace period has found it again", []v1alpha1.Orphan{orphan("a", "1", Grace, false)}, []v1alpha1.Orphan{at("a", "1")}, []v1alpha1.Orphan{orphan("a", "1", Grace, true)}},
		"Confirmed": {"it remains an orphan", []v1alpha1.Orphan{orphan("a", "1", time.Hour, true)}, []v1alpha1.Orphan{at("a", "1")}, []v1alpha1.Orphan{orphan("a", "1", time.Hour, true)}},
		"Removed":   {"it does not exist any more", []v1alpha1.Orphan{orphan("a", "1", time.Hour, true)}, nil, []v1alpha1.Orphan{}},
		"Replaced":  {"another object has its place", []v1alpha1.Orphan{orphan("a", "1", time.Hour, true)}, []v1alpha1.Orphan{at("a", "2")}, []v1alpha1.Orphan{orphan("a", "2", 0, false)}},
		"Order":     {"the oldest orphan is first", []v1alpha1.Orphan{orphan("c", "3", time.Minute, false)}, []v1alpha1.Orphan{at("b", "2"), at("a", "1"), at("c", "3")}, []v1alpha1.Orphan{orphan("c", "3", time.Minute, false), orphan("a", "1", 0, false), orphan("b", "2", 0, false)}},
		"Twice":     {"IDs are the keys of a list", nil, []v1alpha1.Orphan{at("a", "1"), at("a", "2")}, []v1alpha1.Orphan{orphan("a", "1", 0, false)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, Confirm(tc.known, tc.found, now)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestBound keeps the oldest orphans of a list above the limit.
func TestBound(t *testing.T) {
	t.Parallel()
	var found []v1alpha1.Orphan
	for n := range 3 * Most {
		found = append(found, v1alpha1.Orphan{ID: fmt.Sprintf("%03d", n), UID: "1"})
	}
	first := Confirm(nil, found, now)
	second := Confirm(first, append([]v1alpha1.Orphan{{ID: "", UID: "1"}}, found...), now.Add(time.Hour))
	if len(first) != Most || len(Confirmed(second)) != Most {
		t.Errorf("%d orphans after the first check and %d confirmed after the second, want %d of both", len(first), len(Confirmed(second)), Most)
	}
}

func TestEnumerate(t *testing.T) {
	t.Parallel()
	all := []v1alpha1.Orphan{{ID: "pve1/1", Name: "web"}, {ID: "pve1/2"}, {ID: "3", Name: "3"}, {ID: "4"}, {ID: "5"}}
	if got, want := Enumerate(all), "pve1/1 (web), pve1/2, 3 and 2 more"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
