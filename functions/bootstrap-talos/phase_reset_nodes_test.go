package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	simtalos "github.com/vitistack/stack/tests/sim/talos"
	"github.com/vitistack/stack/tests/stand/feed"
)

// replaceDisk gives a machine a new disk, as a hypervisor does that creates it again.
func (s *env) replaceDisk(name string) {
	s.Helper()
	m := s.machine(name)
	feed.Until(s, name+" has its configuration on its disk alone", func() (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.seeds[string(m.UID)] == nil, ""
	})
	if err := s.fleet.Destroy(string(m.UID)); err != nil {
		s.Fatal(err)
	}
	if err := s.power(s.Context(), m); err != nil {
		s.Fatal(err)
	}
	feed.Until(s, name+" with a new disk waits for a configuration", func() (bool, string) {
		got := s.state(name)
		return got == talos.Maintenance, string(got)
	})
}

// state returns the observed state of a machine of cluster shop.
func (s *env) state(name string) talos.State {
	s.Helper()
	state, _ := talos.Probe(s.Context(), plan.Address(s.machine(name)), s.access("shop"))
	return state
}

// reconcileUntil reconciles a cluster until Ready has a reason, with these words in its message.
func (s *env) reconcileUntil(cluster, reason string, words ...string) {
	s.Helper()
	feed.Until(s, cluster+" has not reached the reason", func() (bool, string) {
		s.reconcile(cluster)
		kc := s.get(cluster)
		return !isUpToDate(kc), kc.Status.Message
	})
	s.awaitReason(cluster, reason, words...)
}

// TestResetNodeIsConfiguredAgain erases the disk of a worker, and then that of the control plane that
// etcd was bootstrapped on.
func TestResetNodeIsConfiguredAgain(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 3, 1))
	first := s.awaitRunning("shop").Status.BootstrapMachine
	other := "shop-cp-1"
	if first == other {
		other = "shop-cp-2"
	}
	before := s.memberIDs("shop", other)
	for _, name := range []string{"shop-pool-0", first} {
		uid := s.machine(name).UID
		s.replaceDisk(name)
		feed.Until(t, name+" is configured again", func() (bool, string) {
			s.reconcile("shop")
			kc := s.get("shop")
			return s.state(name) == talos.Configured && isUpToDate(kc), kc.Status.Message
		})
		s.awaitRunning("shop", "cp-0", "cp-1", "cp-2", "pool-0")
		if s.machine(name).UID != uid {
			t.Errorf("%s was replaced by another Machine", name)
		}
	}
	after := s.memberIDs("shop", other)
	if before[first] == after[first] {
		t.Errorf("%s still has the ID of the etcd member whose data is lost", first)
	}
	delete(before, first)
	delete(after, first)
	if !maps.Equal(before, after) {
		t.Errorf("the other etcd members were %x and are %x: a second etcd was bootstrapped", before, after)
	}
}

// TestResetMajorityWaitsForUser leaves an etcd whose majority has lost its data to a user.
func TestResetMajorityWaitsForUser(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		planes int32
		reset  []string
	}{
		"Only":     {1, []string{"shop-cp-0"}},
		"Majority": {3, []string{"shop-cp-0", "shop-cp-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.create(s.cluster("shop", tc.planes, 0))
			s.awaitRunning("shop")
			for _, name := range tc.reset {
				s.replaceDisk(name)
			}
			s.reconcileUntil("shop", "NodeReset", "control plane shop-cp-0", "while etcd has a majority without it: ", "restore a backup", v1alpha1.AnnotationInstalled)
			applied := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionConfigApplied)
			if want := fmt.Sprintf("%d of %s", int(tc.planes)-len(tc.reset), plan.Plural(int(tc.planes), "node")); applied.Message != want {
				t.Errorf("ConfigApplied: %s, want %s", applied.Message, want)
			}
			for _, name := range tc.reset {
				if got := s.state(name); got != talos.Maintenance || !plan.IsInstalled(s.machine(name)) {
					t.Errorf("%s is %s, want it unchanged", name, got)
				}
			}
			if len(tc.reset) == int(tc.planes) {
				s.prepareRestore(tc.reset[0])
			}
		})
	}
}

// prepareRestore configures a control plane without an etcd to join, and checks that it waits for a
// backup.
func (s *env) prepareRestore(name string) {
	s.Helper()
	if err := s.kube.Merge(s.Context(), s.machine(name), map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationInstalled: nil}}}); err != nil {
		s.Fatal(err)
	}
	feed.Until(s, name+" is configured", func() (bool, string) { return s.state(name) == talos.Configured, s.get("shop").Status.Message })
	s.reconcile("shop")
	if etcd, err := talos.ReadEtcdService(s.Context(), plan.Address(s.machine(name)), s.access("shop")); err != nil || etcd.HasData() {
		s.Errorf("another etcd was bootstrapped on %s: %+v, %v", name, etcd, err)
	}
}

// TestSilentNodeIsLeftAlone has a worker be unreachable, or another machine have its address. The
// annotations of its Machine are kept.
func TestSilentNodeIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	m := s.machine("shop-pool-0")
	if err := s.fleet.PowerOff(string(m.UID)); err != nil {
		t.Fatal(err)
	}
	s.reconcileUntil("shop", "WaitingForNodes", "shop-pool-0")
	const stranger = "5c1c1b1a-0000-4000-8000-000000000000"
	if err := s.fleet.PowerOn(t.Context(), simtalos.Machine{
		ID: stranger, Links: []simtalos.Link{{Name: "eth0", MAC: "02:00:00:00:ff:ff"}}, Static: true,
		Address: s.net.Address(s.place(string(m.UID))), Version: "v" + m.Spec.OS.Version, Kind: "nocloud", Preinstalled: true,
		Disks: []simtalos.Disk{{Device: "/dev/vda", Size: 40 << 30}},
	}); err != nil {
		t.Fatal(err)
	}
	s.awaitReason("shop", "WrongNode", "shop-pool-0", "02:00:00:00:ff:ff")
	if got := s.state("shop-pool-0"); got != talos.Maintenance {
		t.Errorf("the other machine is %s", got)
	}
	if err := s.fleet.Destroy(stranger); err != nil {
		t.Fatal(err)
	}
	if err := s.power(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("shop", "cp-0", "pool-0")
	if got := s.machine("shop-pool-0").ResourceVersion; got != m.ResourceVersion {
		t.Errorf("the Machine was written")
	}
}

func TestSuspects(t *testing.T) {
	t.Parallel()
	worker := func(_ *v1alpha1.Machine, c *cluster) { c.plan.Members[0].Role = v1alpha1.RoleWorker }
	plane := func(_ *v1alpha1.Machine, c *cluster) { c.plan.Members[0].Role = v1alpha1.RoleControlPlane }
	ready := func(_ *v1alpha1.Machine, c *cluster) { c.observed.nodes[0].Ready = true }
	silent := func(_ *v1alpha1.Machine, c *cluster) { c.observed.nodes, c.observed.apiAnswers = nil, false }
	type change = func(*v1alpha1.Machine, *cluster)
	for name, tc := range map[string]struct {
		reason  string
		changes []change
		want    bool
	}{
		"Worker":        {"it is not Ready", []change{worker}, true},
		"ControlPlane":  {"it is not Ready", []change{plane}, true},
		"Ready":         {"a working node costs no request", []change{plane, ready}, false},
		"Unknown":       {"the silence of the API is no reason to ask a hundred workers", []change{worker, silent}, false},
		"NoAPI":         {"the API may be unavailable because of this control plane", []change{plane, silent}, true},
		"Bootstrapping": {"its etcd may have been bootstrapped without a recorded success", []change{plane, func(_ *v1alpha1.Machine, c *cluster) { c.before.Status.Conditions = nil }}, false},
		"Removing":      {"it is being removed", []change{worker, func(m *v1alpha1.Machine, _ *cluster) { m.Annotations[v1alpha1.AnnotationRemoving] = "now" }}, false},
		"New":           {"it has had no configuration", []change{worker, func(m *v1alpha1.Machine, _ *cluster) { delete(m.Annotations, v1alpha1.AnnotationInstalled) }}, false},
		"Off":           {"a stopped machine does not answer", []change{worker, func(m *v1alpha1.Machine, _ *cluster) { m.Status.Phase = v1alpha1.MachineStopped }}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1alpha1.AnnotationInstalled: "true"}}}
			m.Status.Phase, m.Status.IPAddresses = v1alpha1.MachineRunning, []string{"192.0.2.1"}
			kc := &v1alpha1.KubernetesCluster{}
			kc.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionBootstrapped, Status: metav1.ConditionTrue}}
			c := &cluster{KubernetesCluster: kc, before: kc.DeepCopy(), observed: observed{machines: map[string]*v1alpha1.Machine{"n": m}, nodes: []plan.Node{{Name: "n"}}, apiAnswers: true}}
			c.plan.Members = []plan.Member{{Name: "n"}}
			for _, change := range tc.changes {
				change(m, c)
			}
			if got := slices.Contains(c.possiblyResetNodes(), m); got != tc.want {
				t.Errorf("%s: suspected %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
