package talos

import (
	"testing"
)

func TestIdentity(t *testing.T) {
	t.Parallel()
	const uid = "0f8fad5b-d9cb-469f-a165-70867728950e"
	macs := []string{"02:00:00:00:00:01"}
	cases := map[string]struct {
		reason string
		id     Identity
		want   bool
	}{
		"UUID":    {"the hypervisor set the UUID", Identity{uuid: uid}, true},
		"MAC":     {"the hypervisor chose the UUID itself", Identity{uuid: "other", macs: []string{"02:00:00:00:00:09", "02:00:00:00:00:01"}}, true},
		"Other":   {"another machine has the address", Identity{uuid: "other", macs: []string{"02:00:00:00:00:09"}}, false},
		"Nothing": {"a node without identity is not the machine", Identity{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.id.Matches(uid, macs); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
