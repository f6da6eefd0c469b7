package stream

import "testing"

// FuzzLastEventID parses any Last-Event-ID. A valid position is formatted as it was parsed.
func FuzzLastEventID(f *testing.F) {
	for _, id := range []string{"", "abc-1", "abc-18446744073709551616", "-1", "a-b-1", "abc--1", "abc-+1", "abc-01"} {
		f.Add(id, "epoch", uint64(7))
	}
	f.Fuzz(func(t *testing.T, id, list string, seq uint64) {
		if epoch, n, ok := parseID(id); ok && epoch == "" {
			t.Errorf("%q is parsed as %d of an empty epoch", id, n)
		}
		if epoch, n, ok := parseID(frameID("e", seq)); !ok || epoch != "e" || n != seq {
			t.Errorf("%d became %d", seq, n)
		}
		if topics, unknown := ParseTopics(list); unknown == "" && len(topics) == 0 && list != "" {
			t.Errorf("%q selects no topic", list)
		}
	})
}
