package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/talos"
	"github.com/vitistack/stack/tests/stand/feed"
)

// witness remembers what the function has ever written into the status of a cluster.
type witness struct {
	http.RoundTripper
	unknown, lost atomic.Bool
}

func (w *witness) wrap(next http.RoundTripper) http.RoundTripper {
	w.RoundTripper = next
	return w
}

// RoundTrip implements http.RoundTripper.
func (w *witness) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/status") {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"Unknown"`)) {
			w.unknown.Store(true)
		}
		if bytes.Contains(body, []byte(reasonEtcdLost)) {
			w.lost.Store(true)
		}
	}
	return w.RoundTripper.RoundTrip(req)
}

// TestNobodyAnswers has the API of a cluster be away. Its nodes and etcd are Unknown then
// unless it is for a moment only, and etcd is lost only where no node has its data.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		planes       int32
		timing       talos.Timing
		away         func(*stand)
		unknown      bool
	}{
		{"Moment", "the API does not answer some requests", 1, talos.Timing{}, func(s *stand) {
			s.faulty(faults.Rule{Operation: "workload", Error: "503", Times: 3})
			s.look("shop")
		}, false},
		{"API", "the API does not answer at all", 1, talos.Timing{}, func(s *stand) {
			s.faulty(faults.Rule{Operation: "workload", Error: "503"})
			s.look("shop")
			s.unanswered("shop", "WaitingForAPI", metav1.ConditionUnknown, "last seen: 1 member")
			s.faulty()
		}, true},
		{"Boot", "the only control plane boots, and its etcd takes its time", 1, talos.Timing{EtcdStart: longPatience + time.Second}, func(s *stand) {
			if err := s.fleet.Reboot(string(s.machine("shop-cp-0").UID)); err != nil {
				s.Fatal(err)
			}
			s.look("shop")
		}, true},
		{"Replaced", "one of three control planes is replaced", 3, talos.Timing{}, func(s *stand) {
			s.lose(s.machine("shop-cp-1"))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := &witness{}
			s := setUp(t, standing{timing: tc.timing, wrap: w.wrap})
			s.create(s.cluster("shop", tc.planes, 0))
			s.running("shop")
			tc.away(s)
			kc := s.running("shop")
			for _, kind := range []string{v1alpha1.ConditionEtcdHealthy, v1alpha1.ConditionNodesReady} {
				if !isTrue(kc, kind) {
					t.Errorf("the cluster runs, and %s is not True", kind)
				}
			}
			if w.lost.Load() || w.unknown.Load() != tc.unknown {
				t.Errorf("%s: said to be lost %t, unknown %t, want false, %t", tc.reason, w.lost.Load(), w.unknown.Load(), tc.unknown)
			}
		})
	}
}

// TestEtcdIsLost deletes the machine of a cluster's only control plane, and then has etcd
// begin on the new one, as somebody does who restores a snapshot.
func TestEtcdIsLost(t *testing.T) {
	t.Parallel()
	s := setUp(t, standing{})
	s.create(s.cluster("shop", 1, 0))
	s.running("shop")
	old := s.machine("shop-cp-0").UID
	if err := s.kube.Delete(t.Context(), s.machine("shop-cp-0")); err != nil {
		t.Fatal(err)
	}
	s.unanswered("shop", reasonEtcdLost, metav1.ConditionFalse, "restore a snapshot")
	kc := s.get("shop")
	s.look("shop")
	if now := s.get("shop"); now.ResourceVersion != kc.ResourceVersion {
		t.Errorf("nothing has changed, and the status is written:\n%v\n%v", kc.Status.Conditions, now.Status.Conditions)
	}
	planes := s.machines("shop")
	m := s.machine("shop-" + planes[0])
	if m.UID == old || len(planes) != 1 {
		t.Fatalf("machines %v, want the one that has the place of the other", planes)
	}
	if err := bootstrap(t.Context(), addressOf(m), s.access("shop")); err != nil {
		t.Fatal(err)
	}
	if kc := s.running("shop", planes...); !isTrue(kc, v1alpha1.ConditionEtcdHealthy) || !isTrue(kc, v1alpha1.ConditionNodesReady) {
		t.Errorf("the cluster runs, with conditions %v", kc.Status.Conditions)
	}
}

// unanswered waits until a cluster of one node, whose API is away, says so everywhere: its
// condition Ready, that of its nodes, and that of etcd, with these words.
func (s *stand) unanswered(cluster, reason string, etcd metav1.ConditionStatus, words string) {
	s.Helper()
	s.waits(cluster, reason)
	feed.Until(s, "nobody says that nodes and etcd are well", func() (bool, string) {
		kc := s.get(cluster)
		member, nodes := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionEtcdHealthy), meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionNodesReady)
		told := member.Status == etcd && strings.Contains(member.Message, words) && nodes.Status == metav1.ConditionUnknown && nodes.Message == "last seen: 1 of 1 node"
		return told, member.String() + nodes.String()
	})
}

// faulty has the nodes suffer these faults from now on, and no others.
func (s *stand) faulty(rules ...faults.Rule) {
	s.Helper()
	if err := s.plan.Set(rules...); err != nil {
		s.Fatal(err)
	}
}
