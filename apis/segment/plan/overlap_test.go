package plan

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// network returns a manual network whose UID is its name.
func network(name string, cidr v1alpha2.IPv4CIDR, vlan v1alpha2.VLANID) *v1alpha2.NetworkNamespace {
	nn := &v1alpha2.NetworkNamespace{}
	nn.Name, nn.Namespace, nn.UID = name, "team", types.UID(name)
	nn.Spec.NetworkProvisioning = &v1alpha2.NetworkProvisioning{Provider: v1alpha2.ProviderManual, Manual: &v1alpha2.ManualSegment{IPv4CIDR: cidr, VLANID: vlan}}
	return nn
}

func TestCheckOverlap(t *testing.T) {
	t.Parallel()
	make := func(name string, age time.Duration, phase v1alpha2.ProvisioningPhase) v1alpha2.NetworkNamespace {
		nn := network(name, "10.5.0.0/24", 1)
		nn.CreationTimestamp.Time = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(-age)
		if nn.Status.ProvisioningPhase = phase; phase == "Ready" || phase == "Pending" || phase == "Deleting" {
			nn.Status.IPv4Prefix, nn.Status.VLANID = "10.5.0.0/24", 1
		}
		return *nn
	}
	moved := make("b", 1, "Ready")
	moved.Spec = network("b", "10.6.0.0/24", 2).Spec
	for name, tc := range map[string]struct {
		reason    string
		nn, other v1alpha2.NetworkNamespace
		gives     bool
		waits     bool
	}{
		"BothNew":         {reason: "the older network is first", nn: make("a", 1, ""), other: make("b", 2, ""), gives: true},
		"BothNewAgain":    {reason: "the older network is first", nn: make("b", 2, ""), other: make("a", 1, "")},
		"SameSecond":      {reason: "networks of the same second are ordered by name", nn: make("b", 1, ""), other: make("a", 1, ""), gives: true},
		"InUse":           {reason: "machines use the segment of the younger network", nn: make("a", 2, ""), other: make("b", 1, "Ready"), gives: true},
		"InUseMoved":      {reason: "an allocated segment counts, whatever the spec", nn: make("a", 2, ""), other: moved, gives: true},
		"InUseDeleted":    {reason: "machines use it until it is deleted", nn: make("a", 2, ""), other: make("b", 1, "Deleting"), gives: true},
		"Refused":         {reason: "a rejected network has no segment", nn: make("a", 1, ""), other: make("b", 2, "Error")},
		"Claimed":         {reason: "a claim may become Ready soon", nn: make("a", 2, ""), other: make("b", 1, "Pending"), gives: true},
		"BothClaim":       {reason: "the younger claim yields", nn: make("a", 1, "Pending"), other: make("b", 2, "Pending"), gives: true},
		"BothClaimAgain":  {reason: "the younger network may have checked first and become Ready", nn: make("b", 2, "Pending"), other: make("a", 1, "Pending"), waits: true},
		"ClaimAgainstNew": {reason: "the other network finds the claim", nn: make("a", 1, "Pending"), other: make("b", 2, "")},
		"ClaimInUse":      {reason: "the other network became Ready first", nn: make("b", 2, "Pending"), other: make("a", 1, "Ready"), gives: true},
		"BothReady":       {reason: "the older network keeps it", nn: make("a", 2, "Ready"), other: make("b", 1, "Ready")},
		"BothReadyAgain":  {reason: "the younger network reports it", nn: make("b", 1, "Ready"), other: make("a", 2, "Ready"), gives: true},
		"ReadyAgainst":    {reason: "a waiting network does not displace a Ready one", nn: make("a", 1, "Ready"), other: make("b", 2, "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seg, err := segment.FromSpec(&tc.nn)
			if err != nil {
				t.Fatal(err)
			}
			waits, err := CheckOverlap(&tc.nn, seg, []v1alpha2.NetworkNamespace{tc.nn, tc.other}, nil)
			if gives := errors.As(err, new(usererror.Error)); gives != tc.gives || waits != tc.waits {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}
