package segment

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha2"
)

func TestCheckRequest(t *testing.T) {
	t.Parallel()
	four, six := Segment{IPv4: netip.MustParsePrefix("10.0.0.0/26")}, Segment{IPv6: netip.MustParsePrefix("2001:db8::/64")}
	for name, tc := range map[string]struct {
		reason  string
		segment Segment
		request v1alpha2.SegmentRequest
		says    string
	}{
		"Default":     {"IPv4 is the default", four, v1alpha2.SegmentRequest{}, ""},
		"Length":      {"the prefix has the length", four, v1alpha2.SegmentRequest{IPv4PrefixLength: 26}, ""},
		"OtherLength": {"the prefix has another length", four, v1alpha2.SegmentRequest{IPv4PrefixLength: 25}, "is not a /25"},
		"NoIPv6":      {"the segment has no IPv6", four, v1alpha2.SegmentRequest{IPFamilies: []v1alpha2.IPFamily{v1alpha2.IPv4, v1alpha2.IPv6}}, "IPv6 prefix that was requested is missing"},
		"OfNoFamily":  {"no IPv4 prefix is requested, whatever its length", six, v1alpha2.SegmentRequest{IPFamilies: []v1alpha2.IPFamily{v1alpha2.IPv6}, IPv4PrefixLength: 28}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.segment.CheckRequest(tc.request)
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.says)
			}
		})
	}
}
