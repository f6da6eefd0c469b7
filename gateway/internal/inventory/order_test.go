package inventory

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompareAttribute(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, attribute string
		want              []string
	}{
		"Numbers":   {reason: "numbers have no leading zeros", attribute: "vlan", want: []string{"0", "9", "100", "1050"}},
		"Versions":  {reason: "each part of a version is a number", attribute: "version", want: []string{"1.9.5", "1.13.9-rc.1", "1.13.9", "v1.13.10", "2.0"}},
		"NoVersion": {reason: "what is no version comes first", attribute: "version", want: []string{"", "8.4-1", "unknown", "1.0.0"}},
		"Addresses": {reason: "addresses are numbers, and those of IPv4 come first", attribute: "address", want: []string{"", "10.0.0.9", "10.0.0.10", "2001:db8::9", "2001:db8::10"}},
		"Text":      {reason: "names are text", attribute: "name", want: []string{"m-10", "m-9"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := slices.Clone(tc.want)
			rand.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
			slices.SortFunc(got, func(a, b string) int { return CompareAttribute(tc.attribute, a, b) })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
