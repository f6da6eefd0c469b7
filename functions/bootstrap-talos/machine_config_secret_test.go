package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestKeysGoToNoOtherNode has another server answer at the addresses of all machines, as Talos does in
// maintenance mode, with their UUIDs and MAC addresses. It gets no configuration, and the cluster
// reports the cause.
func TestKeysGoToNoOtherNode(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.seedless = true
	s.create(s.cluster("shop", 1, 1))
	feed.Until(t, "machines are restarted with their configuration", func() (bool, string) {
		for _, name := range s.machines("shop") {
			m := s.machine("shop-" + name)
			if m.Spec.RestartToken == "" || m.Status.RestartToken != m.Spec.RestartToken {
				return false, name + " has not been restarted; " + s.get("shop").Status.Message
			}
		}
		return len(s.machines("shop")) == 2, s.get("shop").Status.Message
	})
	for range 3 {
		s.reconcile("shop")
	}
	if n := s.plan.Calls()["MachineService/ApplyConfiguration"]; n != 0 {
		t.Errorf("a configuration was sent %d times to an unauthenticated node", n)
	}
	for _, name := range []string{"shop-cp-0", "shop-pool-0"} {
		if m := s.machine(name); plan.IsInstalled(m) || m.Generation > 2 {
			t.Errorf("%s: installed %t, generation %d; want false, and one restart", name, plan.IsInstalled(m), m.Generation)
		}
	}
	if kc := s.get("shop"); kc.Status.Phase != v1alpha1.ClusterProvisioning {
		t.Errorf("the cluster is %s: %s", kc.Status.Phase, kc.Status.Message)
	}
}

// TestConfigurationsAreRemoved checks that no machine configuration of a running cluster is left.
func TestConfigurationsAreRemoved(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 3, 1))
	s.awaitRunning("shop", "cp-0", "cp-1", "cp-2", "pool-0")
	if n := s.plan.Calls()["MachineService/ApplyConfiguration"]; n != 0 {
		t.Errorf("a configuration was sent over the network %d times", n)
	}
	for _, name := range s.machines("shop") {
		m := s.machine("shop-" + name)
		err := s.kube.Get(t.Context(), s.namespace, m.MachineConfigSecret(), &corev1.Secret{})
		if !kube.NotFound(err) || plan.HasMachineConfig(m) {
			t.Errorf("%s: annotations %v, Secret: %v; want it gone", name, m.Annotations, err)
		}
	}
}

// TestSecretIsTaken finds a user's Secret under the name of a machine configuration.
func TestSecretIsTaken(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	taken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop-cp-0-machine-config"}, Data: map[string][]byte{"userdata": []byte("mine")}}
	s.create(taken)
	s.create(s.cluster("shop", 1, 0))
	s.awaitReason("shop", "NameTaken", taken.Name, "delete it")
	if string(s.secret(taken.Name).Data["userdata"]) != "mine" {
		t.Error("a user's Secret was overwritten")
	}
	if err := s.kube.Delete(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	s.reconcile("shop")
	s.awaitRunning("shop", "cp-0")
}

// TestUnprovided has a configuration that create-vm does not find.
func TestUnprovided(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		provided bool
		patient  bool
		want     int
	}{
		"New":   {"it has no configuration yet", false, false, 1},
		"Full":  {"a user deleted the Secret: a full reconcile writes it again", true, true, 1},
		"Event": {"the event of its own annotation writes nothing", true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &v1alpha1.Machine{}
			if tc.provided {
				m.Annotations = map[string]string{v1alpha1.AnnotationMachineConfig: "d"}
			}
			kube.SetReady(&m.Status.Conditions, 1, false, plan.ReasonWaitingForMachineConfig, "waits")
			c := &cluster{polls: tc.patient, observed: observed{machines: map[string]*v1alpha1.Machine{"n": m}}}
			if got := len(c.membersWithoutConfig([]plan.Member{{Name: "n"}})); got != tc.want {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}
