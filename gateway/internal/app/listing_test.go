package app

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOrderOfNumbers sorts by what is a number, or a version, page by page.
func TestOrderOfNumbers(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, vlan := range map[string]int32{"a": 100, "b": 9, "c": 1050, "d": 100} {
		n := aNetwork("team-"+name, name)
		n.Status.VLANID = vlan
		s.api.Put(t, "networknamespaces", n)
	}
	for name, versions := range map[string][2]string{"old": {"1.9.1", "1.9.5"}, "new": {"1.33.1", "1.13.9"}, "between": {"1.10.0", "1.10.0"}} {
		c := aCluster("team-a", name, "Running")
		c.Status.Version, c.Status.TalosVersion = versions[0], versions[1]
		s.api.Put(t, "kubernetesclusters", c)
	}
	for list, n := range map[string]string{"networks": "4", "clusters": "3"} {
		eventually(t, list, func() bool { return s.get("/api/v1/"+list).Header.Get("X-Total-Count") == n })
	}
	for _, tc := range []struct {
		list, attribute string
		want            []string
	}{
		{list: "networks", attribute: "vlan", want: []string{"b", "a", "d", "c"}},
		{list: "networks", attribute: "-vlan", want: []string{"c", "a", "d", "b"}},
		{list: "clusters", attribute: "version", want: []string{"old", "between", "new"}},
		{list: "clusters", attribute: "-version", want: []string{"new", "between", "old"}},
	} {
		var pages [][]string
		for path := "/api/v1/" + tc.list + "?limit=1&sort=" + tc.attribute; path != ""; {
			r := s.get(path)
			pages = append(pages, names(t, r, tc.list))
			path = nextOf(t, r)
		}
		if diff := cmp.Diff(tc.want, slices.Concat(pages...)); diff != "" {
			t.Errorf("%s by %s (-want +got):\n%s", tc.list, tc.attribute, diff)
		}
	}
	if got := s.get("/api/v1/operators/talos").object(t)["version"]; got != "1.13.9" {
		t.Errorf("the newest version of Talos is %v", got)
	}
}
