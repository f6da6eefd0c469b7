package main

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// in returns the time d after noon.
func in(d time.Duration) *metav1.Time {
	t := metav1.NewTime(noon.Add(d))
	return &t
}

func TestSetResult(t *testing.T) {
	t.Parallel()
	seg := segment.Segment{IPv4: netip.MustParsePrefix("192.168.10.0/24"), IPv4Gateway: netip.MustParseAddr("192.168.10.1"), VLAN: 200}
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
		// spec is that of a network of the provider manual if it is empty.
		spec   v1alpha2.NetworkNamespaceSpec
		status v1alpha2.NetworkNamespaceStatus
		seg    segment.Segment
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
			reason: "a slow source is no error",
			err:    provider.Working("is at work", 0),
			want:   v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningPending, Phase: "Pending", Status: "Provisioning", NextCheckTime: in(2 * time.Second)},
			ready:  metav1.ConditionFalse, why: "Provisioning", news: true,
		},
		"Refused": {
			reason: "only the requester can fix the spec",
			err:    reconcile.UserError{Reason: "InvalidSpec", Message: "write a prefix"},
			want:   v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningError, Phase: "Error", Status: "InvalidSpec"},
			ready:  metav1.ConditionFalse, why: "InvalidSpec", news: true,
		},
		"RefusedSegment": {
			reason: "only the requester can fix the spec, and the provider is not asked at each event",
			spec:   asks("nam"), err: reconcile.UserError{Reason: "SegmentOverlap", Message: "delete this network"},
			want:  v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningError, Phase: "Error", Status: "SegmentOverlap", NextCheckTime: in(provider.MaxDelay + time.Second)},
			ready: metav1.ConditionFalse, why: "SegmentOverlap", news: true,
		},
		"RefusedLater": {
			reason: "machines keep using a segment that the spec no longer describes",
			status: ready, err: reconcile.UserError{Reason: "SegmentOverlap", Message: "choose another"}, want: ready,
			ready: metav1.ConditionFalse, why: "SegmentOverlap", news: true,
		},
		"ClaimRefused": {
			reason: "a network that yields reports no segment, so that another network can have it",
			status: claimed, err: reconcile.UserError{Reason: "SegmentOverlap", Message: "choose another"},
			want:  v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningError, Phase: "Error", Status: "SegmentOverlap"},
			ready: metav1.ConditionFalse, why: "SegmentOverlap", news: true,
		},
		"ClaimFails": {
			reason: "the correction of a source takes an unknown time",
			status: claimed, err: provider.PermanentError("SourceUnauthorized", "correct NAM_TOKEN"),
			want:  v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningError, Phase: "Error", Status: "SourceUnauthorized", NextCheckTime: in(provider.MaxDelay + time.Second)},
			ready: metav1.ConditionFalse, why: "SourceUnauthorized", news: true,
		},
		"DownBefore": {
			reason: "a source that is down provides nothing, and its own delay is respected",
			err:    provider.Error{Reason: "SourceUnavailable", Message: "connection refused", RetryAfter: 20 * time.Second},
			want:   v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningPending, Phase: "Pending", Status: "SourceUnavailable", NextCheckTime: in(21 * time.Second)},
			ready:  metav1.ConditionFalse, why: "SourceUnavailable", news: true,
		},
		"Final": {
			reason: "a user has to change the source, or its connection",
			err:    provider.PermanentError("SourceUnauthorized", "correct NAM_TOKEN"),
			want:   v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningError, Phase: "Error", Status: "SourceUnauthorized", NextCheckTime: in(provider.MaxDelay + time.Second)},
			ready:  metav1.ConditionFalse, why: "SourceUnauthorized", news: true,
		},
		"DownLater": {
			reason: "machines keep using a segment whose source is down",
			status: ready, err: provider.PermanentError("SourceUnauthorized", "correct NAM_TOKEN"), want: readyUntil(in(provider.MaxDelay + time.Second)),
			ready: metav1.ConditionFalse, why: "SourceUnauthorized", news: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nn := &v1alpha2.NetworkNamespace{Spec: tc.spec, Status: tc.status}
			if nn.Spec.NetworkProvisioning == nil {
				nn.Spec = manualSpec("192.168.10.0/24", "192.168.10.1", 200)
			}
			outcome := setSegmentResult(nn, tc.seg, tc.err, noon)
			if diff := cmp.Diff(tc.want, nn.Status, cmpopts.IgnoreFields(v1alpha2.NetworkNamespaceStatus{}, "Conditions")); diff != "" {
				t.Errorf("%s: status (-want +got):\n%s", tc.reason, diff)
			}
			c := nn.Status.Conditions[0]
			if c.Status != tc.ready || c.Reason != tc.why || outcome.Changed != tc.news {
				t.Errorf("%s: got Ready %s %s, Changed %t", tc.reason, c.Status, c.Reason, outcome.Changed)
			}
			before := nn.DeepCopy()
			if again := setSegmentResult(nn, tc.seg, tc.err, noon); again.Changed || !cmp.Equal(before.Status, nn.Status) {
				t.Errorf("a second decision must change nothing, got Changed %t:\n%s", again.Changed, cmp.Diff(before.Status, nn.Status))
			}
		})
	}
}

func TestJoinNames(t *testing.T) {
	t.Parallel()
	if got := joinNames([]string{"a", "b"}); got != "a, b" {
		t.Errorf("few names: got %q", got)
	}
	if got := joinNames([]string{"a", "b", "c", "d", "e", "f", "g"}); got != "a, b, c, d, e and 2 more" {
		t.Errorf("many names: got %q", got)
	}
}
