package main

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// TestOverlap is a younger network that waits for an older one.
func TestOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.network("a", manualSpec("10.3.0.0/16", "", 7))
	w.expect(w.look("a"), "Ready", reasonProvisioned)
	w.network("b", manualSpec("10.3.4.0/24", "", 7))
	w.network("other-vlan", manualSpec("10.3.4.0/24", "", 8))
	elsewhere := manualSpec("10.3.4.0/24", "", 7)
	elsewhere.DatacenterIdentifier = "elsewhere-" + v1alpha2.Identifier(w.namespace[len(w.namespace)-6:])
	w.network("other-datacenter", elsewhere)
	nn := w.look("b")
	if message := w.expect(nn, "Error", reasonOverlap); !strings.Contains(message, w.namespace+"/a") || nn.Status.IPv4Prefix != "" {
		t.Errorf("the message names who holds it: %s; prefix %q", message, nn.Status.IPv4Prefix)
	}
	w.expect(w.look("other-vlan"), "Ready", reasonProvisioned)
	w.expect(w.look("other-datacenter"), "Ready", reasonProvisioned)
	w.change("a", func(nn *v1alpha2.NetworkNamespace) { nn.Labels = map[string]string{"seen": "again"} })
	w.expect(w.look("a"), "Ready", reasonProvisioned)

	w.delete(w.get("a"))
	if w.look("a") != nil {
		t.Fatal("a must go")
	}
	w.must(w.deliver(kindNetwork, "a", events.TypeRefDelete))
	w.expect(w.get("b"), "Ready", reasonProvisioned)
}

// TestOverlapRace has ten networks become Ready at the same moment that all want the
// same segment.
func TestOverlapRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const rivals = 10
	var group sync.WaitGroup
	for i := range rivals {
		group.Go(func() {
			name := fmt.Sprintf("n%d", i)
			w.network(name, manualSpec("10.4.0.0/24", "", v1alpha2.VLANID(9)))
			for range 3 {
				if err := w.deliver(kindNetwork, name, events.TypeRefAdd); err != nil && !kube.Conflict(err) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	var holders []string
	for i := range rivals {
		if nn := w.get(fmt.Sprintf("n%d", i)); isReady(nn) {
			holders = append(holders, nn.Name)
		}
	}
	if len(holders) > 1 {
		t.Errorf("%v have the same segment", holders)
	}
	for i := range rivals {
		w.look(fmt.Sprintf("n%d", i))
	}
	ready := 0
	for i := range rivals {
		if isReady(w.get(fmt.Sprintf("n%d", i))) {
			ready++
		}
	}
	if ready != 1 {
		t.Errorf("%d networks are Ready in the end, want one", ready)
	}
}

func TestRivals(t *testing.T) {
	t.Parallel()
	make := func(name string, age time.Duration, ready bool) v1alpha2.NetworkNamespace {
		nn := someNetwork(name, manualSpec("10.5.0.0/24", "", 1))
		nn.CreationTimestamp.Time = noon.Add(-age)
		if ready {
			nn.Status.ProvisioningPhase, nn.Status.IPv4Prefix, nn.Status.VLANID = "Ready", "10.5.0.0/24", 1
		}
		return *nn
	}
	for name, tc := range map[string]struct {
		reason      string
		nn, other   v1alpha2.NetworkNamespace
		holder      bool
		gives, same bool
	}{
		"BothNew":        {reason: "the older one comes first", nn: make("a", 1, false), other: make("b", 2, false), holder: true},
		"BothNewAgain":   {reason: "the older one comes first", nn: make("b", 2, false), other: make("a", 1, false)},
		"SameSecond":     {reason: "of two of the same second one comes first", nn: make("b", 1, false), other: make("a", 1, false), holder: true},
		"InUse":          {reason: "machines use the younger one's segment", nn: make("a", 2, false), other: make("b", 1, true), holder: true},
		"BothReady":      {reason: "two that became Ready at once: the younger gives way", nn: make("a", 2, true), other: make("b", 1, true), gives: true},
		"BothReadyAgain": {reason: "two that became Ready at once: the younger gives way", nn: make("b", 1, true), other: make("a", 2, true), holder: true},
		"ReadyAgainst":   {reason: "who waits does not push out who has it", nn: make("a", 1, true), other: make("b", 2, false)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seg, err := manualSegment(&tc.nn)
			if err != nil {
				t.Fatal(err)
			}
			holder, losers := rivals(&tc.nn, seg, []v1alpha2.NetworkNamespace{tc.nn, tc.other})
			if (holder != nil) != tc.holder || (len(losers) > 0) != tc.gives {
				t.Errorf("%s: holder %v, losers %v", tc.reason, holder, losers)
			}
		})
	}
}
