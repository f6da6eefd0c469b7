package proxmox

import "testing"

func TestOwnerUID(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, tags, want string
	}{
		"Ours":    {"both tags are there", "uid-1-2;vitistack", "1-2"},
		"Cluster": {"more tags do not matter", "cluster-a;role-worker;uid-1-2;vitistack", "1-2"},
		"NoUID":   {"no tag names its Machine", "vitistack", ""},
		"Foreign": {"a tag of another owner may look alike", "uid-1-2", ""},
		"None":    {"it has no tags", "", ""},
	} {
		if got := ownerUID(splitTags(tc.tags)); got != tc.want {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.want)
		}
	}
}
