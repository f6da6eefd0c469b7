package main

import (
	"encoding/json"
	"testing"
	"time"
)

// TestGrace sends events for objects that are due, unless the events of their last writes may be in transit.
func TestGrace(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 30, 0, time.UTC)
	const fields = `"name":"vm","namespace":"shop","generation":1,"creationTimestamp":"2026-01-02T03:04:00Z"`
	for name, tc := range map[string]struct {
		reason, doc string
		full, want  bool
	}{
		"Old":     {reason: "its events were lost", doc: `{"metadata":{` + fields + `}}`, want: true},
		"Written": {reason: "the event of its last write comes", doc: `{"metadata":{` + fields + `,"managedFields":[{"time":"2026-01-02T03:04:20Z"}]}}`},
		"Before":  {reason: "its last write was before the grace", doc: `{"metadata":{` + fields + `,"managedFields":[{"time":"2026-01-02T03:04:05Z"},{}]}}`, want: true},
		"Full":    {reason: "a full round includes all that are due", doc: `{"metadata":{` + fields + `,"managedFields":[{"time":"2026-01-02T03:04:20Z"}]}}`, full: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var o object
			if err := json.Unmarshal([]byte(tc.doc), &o); err != nil {
				t.Fatal(err)
			}
			got := sent{}
			p := round{full: tc.full, function: &function{sender: &got, now: func() time.Time { return now }, grace: 20 * time.Second}}
			if err := p.sendIfNeeded(t.Context(), kinds[3], o); err != nil {
				t.Fatal(err)
			}
			if has := len(got) > 0; has != tc.want {
				t.Errorf("%s: sent %t", tc.reason, has)
			}
		})
	}
}

func TestReadGrace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 20 * time.Second, "30s": 10 * time.Second} {
		if got, err := readGrace(func(string) string { return text }); err != nil || got != want {
			t.Errorf("RESYNC_PERIOD %q: got %s and %v, want %s", text, got, err, want)
		}
	}
	if _, err := readGrace(func(string) string { return "soon" }); err == nil {
		t.Error("a period that is no duration has to be refused")
	}
}
