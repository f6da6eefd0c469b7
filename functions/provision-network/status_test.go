package main

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha2"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// in is a time that long after noon.
func in(d time.Duration) *metav1.Time {
	t := metav1.NewTime(noon.Add(d))
	return &t
}

// TestWait is how long a source is left alone.
func TestWait(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		fault   fault
		lasting time.Duration
		want    time.Duration
	}{
		"First":   {reason: "most faults are short", fault: fault{}, want: firstWait},
		"Longer":  {reason: "what lasts is asked less and less often", fault: fault{}, lasting: 20 * time.Second, want: 20 * time.Second},
		"Longest": {reason: "it is never forgotten", fault: fault{}, lasting: time.Hour, want: longestWait},
		"Asked":   {reason: "the source knows best", fault: fault{after: time.Minute}, lasting: time.Second, want: time.Minute},
		"Patient": {reason: "the source knows best, even for hours", fault: fault{after: time.Hour}, lasting: time.Second, want: time.Hour},
		"Working": {reason: "the end of a source's work is seen soon, however long it was out before", fault: working("", 0), lasting: time.Hour, want: longestWork},
		"Quick":   {reason: "most work is short", fault: working("", 0), lasting: 2 * time.Second, want: 2 * time.Second},
		"Slow":    {reason: "the source knows how long its work takes", fault: working("", time.Hour), lasting: time.Second, want: time.Hour},
		"Final":   {reason: "people take their time", fault: fault{final: true}, want: longestWait},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.fault.wait(tc.lasting); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	seg := segment{ipv4: netip.MustParsePrefix("192.168.10.0/24"), ipv4Gateway: netip.MustParseAddr("192.168.10.1"), vlan: 200}
	ready := v1alpha2.NetworkNamespaceStatus{
		ProvisioningPhase: v1alpha2.ProvisioningReady, Phase: "Active", Status: "OK",
		IPv4Prefix: "192.168.10.0/24", IPv4Gateway: "192.168.10.1", VLANID: 200,
	}
	claimed := ready
	claimed.ProvisioningPhase, claimed.Phase, claimed.Status = v1alpha2.ProvisioningPending, "Pending", reasonClaiming
	readyUntil := func(next *metav1.Time) v1alpha2.NetworkNamespaceStatus {
		s := ready
		s.NextCheckTime = next
		return s
	}
	cases := map[string]struct {
		reason string
		status v1alpha2.NetworkNamespaceStatus
		seg    segment
		err    error
		want   v1alpha2.NetworkNamespaceStatus
		ready  metav1.ConditionStatus
		why    string
		news   bool
	}{
		"Provided": {
			reason: "layer 2 waits for Ready with prefix, gateway and VLAN",
			seg:    seg, want: ready, ready: metav1.ConditionTrue, why: "Provisioned", news: true,
		},
		"Pending": {
			reason: "a slow source is no fault",
			err:    working("is at work", 0),
			want:   v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningPending, Phase: "Pending", Status: "Provisioning", NextCheckTime: in(2 * time.Second)},
			ready:  metav1.ConditionFalse, why: "Provisioning", news: true,
		},
		"Refused": {
			reason: "only the owner of the network can mend it",
			err:    refused{"InvalidSpec", "write a prefix"},
			want:   v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningError, Phase: "Error", Status: "InvalidSpec"},
			ready:  metav1.ConditionFalse, why: "InvalidSpec", news: true,
		},
		"RefusedLater": {
			reason: "machines go on using a segment that the spec does not describe rightly any more",
			status: ready, err: refused{"SegmentOverlap", "choose another"}, want: ready,
			ready: metav1.ConditionFalse, why: "SegmentOverlap", news: true,
		},
		"ClaimRefused": {
			reason: "a network that gives way has nothing any more, so that another one can have it",
			status: claimed, err: refused{"SegmentOverlap", "choose another"},
			want:  v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningError, Phase: "Error", Status: "SegmentOverlap"},
			ready: metav1.ConditionFalse, why: "SegmentOverlap", news: true,
		},
		"ClaimFails": {
			reason: "nobody knows for how long somebody takes to correct the source",
			status: claimed, err: final("SourceUnauthorized", "correct NAM_TOKEN"),
			want:  v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningError, Phase: "Error", Status: "SourceUnauthorized", NextCheckTime: in(longestWait + time.Second)},
			ready: metav1.ConditionFalse, why: "SourceUnauthorized", news: true,
		},
		"DownBefore": {
			reason: "a source that is down provides nothing, and is left alone for as long as it says",
			err:    fault{reason: "SourceUnavailable", message: "connection refused", after: 20 * time.Second},
			want:   v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningPending, Phase: "Pending", Status: "SourceUnavailable", NextCheckTime: in(21 * time.Second)},
			ready:  metav1.ConditionFalse, why: "SourceUnavailable", news: true,
		},
		"Final": {
			reason: "somebody has to change something at the source, or in how it is reached",
			err:    final("SourceUnauthorized", "correct NAM_TOKEN"),
			want:   v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningError, Phase: "Error", Status: "SourceUnauthorized", NextCheckTime: in(longestWait + time.Second)},
			ready:  metav1.ConditionFalse, why: "SourceUnauthorized", news: true,
		},
		"DownLater": {
			reason: "machines go on using a segment whose source is down",
			status: ready, err: final("SourceUnauthorized", "correct NAM_TOKEN"), want: readyUntil(in(longestWait + time.Second)),
			ready: metav1.ConditionFalse, why: "SourceUnauthorized", news: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nn := &v1alpha2.NetworkNamespace{Status: tc.status}
			told := decide(nn, tc.seg, tc.err, noon)
			if diff := cmp.Diff(tc.want, nn.Status, cmpopts.IgnoreFields(v1alpha2.NetworkNamespaceStatus{}, "Conditions")); diff != "" {
				t.Errorf("%s: status (-want +got):\n%s", tc.reason, diff)
			}
			c := nn.Status.Conditions[0]
			if c.Status != tc.ready || c.Reason != tc.why || told.news != tc.news {
				t.Errorf("%s: got Ready %s %s, news %t", tc.reason, c.Status, c.Reason, told.news)
			}
			before := nn.DeepCopy()
			if again := decide(nn, tc.seg, tc.err, noon); again.news || !cmp.Equal(before.Status, nn.Status) {
				t.Errorf("deciding again must change nothing, got news %t:\n%s", again.news, cmp.Diff(before.Status, nn.Status))
			}
		})
	}
}

func TestProviderOf(t *testing.T) {
	t.Parallel()
	static := &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &v1alpha2.StaticPool{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.0.1"}}
	cases := map[string]struct {
		reason   string
		spec     v1alpha2.NetworkNamespaceSpec
		want     string
		inferred bool
	}{
		"Nothing":  {reason: "nam is the default", want: "nam", inferred: true},
		"Inline":   {reason: "a network that describes itself is manual", spec: v1alpha2.NetworkNamespaceSpec{IPAllocation: static}, want: "manual", inferred: true},
		"Explicit": {reason: "an explicit provider always wins", spec: v1alpha2.NetworkNamespaceSpec{IPAllocation: static, NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "netbox"}}, want: "netbox"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, inferred := providerOf(tc.spec); got != tc.want || inferred != tc.inferred {
				t.Errorf("%s: got %s, inferred %t", tc.reason, got, inferred)
			}
		})
	}
}

func TestManual(t *testing.T) {
	t.Parallel()
	block := func(m v1alpha2.ManualSegment) v1alpha2.NetworkNamespaceSpec {
		return v1alpha2.NetworkNamespaceSpec{NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "manual", Manual: &m}}
	}
	cases := map[string]struct {
		reason string
		spec   v1alpha2.NetworkNamespaceSpec
		want   segment
		refuse string
	}{
		"IPv4": {
			reason: "prefix, gateway and VLAN are copied",
			spec:   block(v1alpha2.ManualSegment{IPv4CIDR: "192.168.10.0/24", IPv4Gateway: "192.168.10.1", VLANID: 200}),
			want:   segment{ipv4: netip.MustParsePrefix("192.168.10.0/24"), ipv4Gateway: netip.MustParseAddr("192.168.10.1"), vlan: 200},
		},
		"LinkLocal": {
			reason: "machines would be where their cloud keeps credentials",
			spec:   block(v1alpha2.ManualSegment{IPv4CIDR: "169.254.169.0/24"}),
			refuse: "spec.networkProvisioning.manual: prefix 169.254.169.0/24 is not one of a network with machines",
		},
		"AroundLinkLocal": {
			reason: "that is in it as well",
			spec:   block(v1alpha2.ManualSegment{IPv4CIDR: "168.0.0.0/6"}),
			refuse: "spec.networkProvisioning.manual: prefix 168.0.0.0/6 is not one of a network with machines",
		},
		"DualStack": {
			reason: "both families are served",
			spec:   block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/30", IPv6CIDR: "2001:db8::/64", IPv6Gateway: "2001:db8::1"}),
			want:   segment{ipv4: netip.MustParsePrefix("10.0.0.0/30"), ipv6: netip.MustParsePrefix("2001:db8::/64"), ipv6Gateway: netip.MustParseAddr("2001:db8::1")},
		},
		"Inferred": {
			reason: "a network without networkProvisioning describes itself in its pool",
			spec: v1alpha2.NetworkNamespaceSpec{IPAllocation: &v1alpha2.IPAllocationPolicy{Type: "static",
				Static: &v1alpha2.StaticPool{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.0.1", VLANID: 7}}},
			want: segment{ipv4: netip.MustParsePrefix("10.0.0.0/24"), ipv4Gateway: netip.MustParseAddr("10.0.0.1"), vlan: 7},
		},
		"Empty":              {reason: "there is nothing to copy", refuse: "spec.networkProvisioning.manual: there is neither an IPv4 nor an IPv6 prefix"},
		"NoPrefix":           {reason: "the prefix must parse", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0/24"}), refuse: `spec.networkProvisioning.manual.ipv4CIDR: netip.ParsePrefix("10.0.0/24"): ParseAddr("10.0.0"): IPv4 address too short`},
		"HostBits":           {reason: "a prefix with host bits is most likely a mistake", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.7/24"}), refuse: "spec.networkProvisioning.manual: prefix 10.0.0.7/24 has host bits set: write 10.0.0.0/24"},
		"GatewayOutside":     {reason: "machines could not reach it", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.1.1"}), refuse: "spec.networkProvisioning.manual: gateway 10.0.1.1 is outside of 10.0.0.0/24"},
		"NetworkAsGateway":   {reason: "no host can have that address", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.0.0"}), refuse: "spec.networkProvisioning.manual: gateway 10.0.0.0 is the network address of 10.0.0.0/24, which no host can have"},
		"BroadcastAsGateway": {reason: "no host can have that address", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/24", IPv4Gateway: "10.0.0.255"}), refuse: "spec.networkProvisioning.manual: gateway 10.0.0.255 is the broadcast address of 10.0.0.0/24, which no host can have"},
		"LinkLocalGateway": {
			reason: "an IPv6 router announces itself with a link-local address",
			spec:   block(v1alpha2.ManualSegment{IPv6CIDR: "2001:db8::/64", IPv6Gateway: "fe80::1"}),
			want:   segment{ipv6: netip.MustParsePrefix("2001:db8::/64"), ipv6Gateway: netip.MustParseAddr("fe80::1")},
		},
		"WrongFamily": {reason: "an IPv6 prefix is no IPv4 prefix", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "2001:db8::/64"}), refuse: "spec.networkProvisioning.manual: prefix 2001:db8::/64 is of the other family"},
		"VLAN":        {reason: "4095 is reserved", spec: block(v1alpha2.ManualSegment{IPv4CIDR: "10.0.0.0/24", VLANID: 4095}), refuse: "spec.networkProvisioning.manual: VLAN 4095 is not between 0 and 4094"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := manual{}.Provide(t.Context(), &v1alpha2.NetworkNamespace{Spec: tc.spec})
			var r refused
			if errors.As(err, &r); r.message != tc.refuse {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.refuse)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(segment{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err == nil && diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	if got := sentence([]string{"a", "b"}); got != "a, b" {
		t.Errorf("few names: got %q", got)
	}
	if got := sentence([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Errorf("many names: got %q", got)
	}
}
