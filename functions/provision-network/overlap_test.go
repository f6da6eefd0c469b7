package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

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

// meeting holds back the first write of a status until all that meet are about to
// write one: each has looked for rivals by then, and found none.
type meeting struct {
	http.RoundTripper
	once  sync.Once
	group *sync.WaitGroup
}

func (m *meeting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/status") {
		m.once.Do(func() { m.group.Done(); m.group.Wait() })
	}
	return m.RoundTripper.RoundTrip(req)
}

// TestOverlapRace has networks become Ready at the same moment that all want the same
// segment.
func TestOverlapRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const rivals = 4
	var met, done sync.WaitGroup
	met.Add(rivals)
	names := []string{}
	for i := range rivals {
		names = append(names, fmt.Sprintf("n%d", i))
		w.network(names[i], asks("racing"))
	}
	for _, name := range names {
		config := rest.CopyConfig(w.config)
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &meeting{RoundTripper: rt, group: &met} })
		f := &function{kube: w.client(config), sender: w.f.sender, now: w.f.now, sources: map[string]source{
			"racing": always{segment{ipv4: netip.MustParsePrefix("10.4.0.0/24"), vlan: 9}},
		}}
		done.Go(func() {
			err := kube.OnConflict(func() error { return f.settle(t.Context(), w.namespace, name, look{}) })
			if err != nil && !kube.Conflict(err) {
				t.Error(err)
			}
		})
	}
	done.Wait()
	var holders []string
	for _, name := range names {
		if isReady(w.get(name)) {
			holders = append(holders, name)
		}
	}
	if len(holders) != 1 {
		t.Errorf("%v have the same segment, want one to have it", holders)
	}
}

// TestOverlapIsFound has a process die after it made a network Ready, and before it
// looked whether another one was quicker.
func TestOverlapIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, name := range []string{"a", "b"} {
		nn := w.network(name, manualSpec("10.4.0.0/24", "", 9))
		before := nn.DeepCopy()
		decide(nn, segment{ipv4: netip.MustParsePrefix("10.4.0.0/24"), vlan: 9}, nil, w.clock.Now())
		_, err := w.kube.PatchStatus(t.Context(), before, nn)
		w.must(err)
	}
	w.look("b")
	w.look("a")
	if a, b := isReady(w.get("a")), isReady(w.get("b")); a == b {
		t.Errorf("a is Ready: %t, b: %t", a, b)
	}
}

// always is a source that gives everybody the same segment.
type always struct{ segment segment }

func (a always) Provide(context.Context, *v1alpha2.NetworkNamespace) (segment, error) {
	return a.segment, nil
}

func (a always) Release(context.Context, *v1alpha2.NetworkNamespace) error { return nil }

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
