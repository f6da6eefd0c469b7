package stream

import "testing"

// FuzzLastEventID reads where a client says it was. A place of ours is read again as
// it was written.
func FuzzLastEventID(f *testing.F) {
	for _, id := range []string{"", "abc-1", "abc-18446744073709551616", "-1", "a-b-1", "abc--1", "abc-+1", "abc-01"} {
		f.Add(id, "epoch", uint64(7))
	}
	f.Fuzz(func(t *testing.T, id, list string, seq uint64) {
		if epoch, n, ok := parseID(id); ok && epoch == "" {
			t.Errorf("%q is %d of nothing", id, n)
		}
		if epoch, n, ok := parseID(frameID("e", seq)); !ok || epoch != "e" || n != seq {
			t.Errorf("%d became %d", seq, n)
		}
		if topics, unknown := ParseTopics(list); unknown == "" && len(topics) == 0 && list != "" {
			t.Errorf("%q asks for nothing", list)
		}
	})
}
