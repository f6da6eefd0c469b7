package main

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/tests/sim/faults"
	simtalos "github.com/vitistack/stack/tests/sim/talos"
	"github.com/vitistack/stack/tests/stand/feed"
)

// statuses records every status that the function has written.
type statuses struct {
	http.RoundTripper
	mu  sync.Mutex
	all [][]byte
}

func (w *statuses) wrap(next http.RoundTripper) http.RoundTripper {
	w.RoundTripper = next
	return w
}

// RoundTrip implements http.RoundTripper.
func (w *statuses) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/status") {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
		w.mu.Lock()
		w.all = append(w.all, body)
		w.mu.Unlock()
	}
	return w.RoundTripper.RoundTrip(req)
}

// contain reports whether one of the statuses has all these words.
func (w *statuses) contain(words ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.all, func(body []byte) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !bytes.Contains(body, []byte(word)) })
	})
}

// TestAPIIsSilent has the API of a cluster be unavailable. The conditions of nodes and etcd are then
// Unknown, except during a short outage, and EtcdLost only if no node has data of etcd.
func TestAPIIsSilent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		planes       int32
		timing       simtalos.Timing
		away         func(*env)
		unknown      bool
	}{
		{"Moment", "the API fails some requests", 1, simtalos.Timing{}, func(s *env) {
			s.setFaults(faults.Rule{Operation: "workload", Error: "503", Times: 3})
			s.reconcile("shop")
		}, false},
		{"API", "the API does not answer at all", 1, simtalos.Timing{}, func(s *env) {
			s.setFaults(faults.Rule{Operation: "workload", Error: "503"})
			s.reconcile("shop")
			s.awaitSilentAPI("shop", "ClusterUnreachable", metav1.ConditionUnknown, "last seen: 1 member")
			s.setFaults()
		}, true},
		{"Boot", "the only control plane boots, and its etcd starts slowly", 1, simtalos.Timing{EtcdStart: nodePollTime + time.Second}, func(s *env) {
			if err := s.fleet.Reboot(string(s.machine("shop-cp-0").UID)); err != nil {
				s.Fatal(err)
			}
			s.reconcile("shop")
		}, true},
		{"Replaced", "one of three control planes is replaced", 3, simtalos.Timing{}, func(s *env) {
			s.loseMachine(s.machine("shop-cp-1"))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			written := &statuses{}
			s := newEnv(t, envOptions{timing: tc.timing, wrap: written.wrap})
			s.create(s.cluster("shop", tc.planes, 0))
			s.awaitRunning("shop")
			tc.away(s)
			kc := s.awaitRunning("shop")
			for _, kind := range []string{v1alpha1.ConditionEtcdHealthy, v1alpha1.ConditionNodesReady} {
				if !isTrue(kc, kind) {
					t.Errorf("the cluster runs, and %s is not True", kind)
				}
			}
			if lost, unknown := written.contain(plan.ReasonEtcdLost), written.contain(`"Unknown"`); lost || unknown != tc.unknown {
				t.Errorf("%s: reported lost %t, unknown %t, want false, %t", tc.reason, lost, unknown, tc.unknown)
			}
		})
	}
}

// TestEtcdIsLost deletes the machine of a cluster's only control plane, and then bootstraps etcd on
// the replacement, as the restore of a snapshot does.
func TestEtcdIsLost(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop")
	old := s.machine("shop-cp-0").UID
	s.annotate("shop-cp-0", v1alpha1.AnnotationForce, "true")
	if err := s.kube.Delete(t.Context(), s.machine("shop-cp-0")); err != nil {
		t.Fatal(err)
	}
	s.awaitSilentAPI("shop", plan.ReasonEtcdLost, metav1.ConditionFalse, "restore a snapshot")
	s.reconcile("shop")
	kc := s.get("shop")
	s.reconcile("shop")
	if now := s.get("shop"); now.ResourceVersion != kc.ResourceVersion {
		t.Errorf("an unchanged status was written:\n%v\n%v", kc.Status.Conditions, now.Status.Conditions)
	}
	planes := s.machines("shop")
	m := s.machine("shop-" + planes[0])
	if m.UID == old || len(planes) != 1 {
		t.Fatalf("machines %v, want the replacement", planes)
	}
	if err := talos.Bootstrap(t.Context(), plan.Address(m), s.access("shop")); err != nil {
		t.Fatal(err)
	}
	if kc := s.awaitRunning("shop", planes...); !isTrue(kc, v1alpha1.ConditionEtcdHealthy) || !isTrue(kc, v1alpha1.ConditionNodesReady) {
		t.Errorf("the cluster runs, with conditions %v", kc.Status.Conditions)
	}
}

// TestMinorityIsLeft forces the removal of two of three control planes.
func TestMinorityIsLeft(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 3, 0))
	s.awaitRunning("shop")
	for _, name := range []string{"shop-cp-1", "shop-cp-2"} {
		if err := s.fleet.PowerOff(string(s.machine(name).UID)); err != nil {
			t.Fatal(err)
		}
		s.annotate(name, v1alpha1.AnnotationForce, "true")
		if err := s.kube.Delete(t.Context(), s.machine(name)); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitReason("shop", plan.ReasonEtcdUnavailable, "1 of 3 members of etcd left (shop-cp-0)", "restore", "create it again")
	feed.Until(t, "EtcdHealthy is False", func() (bool, string) {
		c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionEtcdHealthy)
		return c.Status == metav1.ConditionFalse && c.Reason == plan.ReasonEtcdUnavailable, c.String()
	})
}

// TestDeletedControlPlanesLeave deletes the Machines of control planes. They stay until etcd has a
// majority without them, so that the objects of the cluster survive.
func TestDeletedControlPlanesLeave(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		planes  int32
		deleted []string
	}{
		"TwoOfThree": {3, []string{"shop-cp-1", "shop-cp-2"}},
		"TheOnly":    {1, []string{"shop-cp-0"}},
		"All":        {3, []string{"shop-cp-0", "shop-cp-1", "shop-cp-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.create(s.cluster("shop", tc.planes, 0))
			s.awaitRunning("shop")
			kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
			if _, err := s.workload("shop").CoreV1().ConfigMaps("default").Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			gone := map[types.UID]bool{}
			for _, name := range tc.deleted {
				m := s.machine(name)
				gone[m.UID] = true
				if err := s.kube.Delete(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			feed.Until(t, "the control planes are replaced", func() (bool, string) {
				list := &v1alpha1.MachineList{}
				if err := s.kube.List(t.Context(), s.namespace, "", list); err != nil {
					return false, err.Error()
				}
				left := slices.ContainsFunc(list.Items, func(m v1alpha1.Machine) bool { return gone[m.UID] })
				return !left, s.get("shop").Status.Message
			})
			s.awaitRunning("shop")
			planes := s.machines("shop")
			if got := s.members("shop", planes[0]); len(planes) != int(tc.planes) || !slices.Equal(got, planes) {
				t.Errorf("control planes %v, members of etcd %v, want %d", planes, got, tc.planes)
			}
			if _, err := s.workload("shop").CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
				t.Errorf("the objects of the cluster are lost: %v", err)
			}
		})
	}
}

// TestLastMemberStays pauses a cluster whose only control plane is being deleted: it is not replaced,
// and only force deletes it.
func TestLastMemberStays(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Paused = true })
	s.awaitReason("shop", "Paused")
	m := s.machine("shop-cp-0")
	if err := s.kube.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	s.reconcile("shop")
	if now := s.machine("shop-cp-0"); now.UID != m.UID {
		t.Fatalf("Machine shop-cp-0 was replaced")
	}
	s.annotate("shop-cp-0", v1alpha1.AnnotationForce, "true")
	feed.Until(t, "the Machine is deleted", func() (bool, string) { return len(s.machines("shop")) == 0, strings.Join(s.machines("shop"), " ") })
}

// awaitSilentAPI waits until a cluster of one node whose API is unavailable reports that in Ready, in the
// condition of its nodes, and in that of etcd, with this message.
func (s *env) awaitSilentAPI(cluster, reason string, etcd metav1.ConditionStatus, words string) {
	s.Helper()
	s.awaitReason(cluster, reason)
	feed.Until(s, "no condition reports healthy nodes and etcd", func() (bool, string) {
		kc := s.get(cluster)
		member, nodes := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionEtcdHealthy), meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionNodesReady)
		done := member.Status == etcd && strings.Contains(member.Message, words) && nodes.Status == metav1.ConditionUnknown && nodes.Message == "last seen: 1 of 1 node"
		return done, member.String() + nodes.String()
	})
}

// setFaults replaces the faults of the nodes by these rules.
func (s *env) setFaults(rules ...faults.Rule) {
	s.Helper()
	if err := s.plan.Set(rules...); err != nil {
		s.Fatal(err)
	}
}
