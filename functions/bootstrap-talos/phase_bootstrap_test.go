package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	simtalos "github.com/vitistack/stack/tests/sim/talos"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestBootstrapIsLost cuts the power of a node that pulls etcd's image, and so loses the bootstrap
// request. The node gets another request, but never two in one boot, because each would start the pull
// again.
func TestBootstrapIsLost(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{timing: simtalos.Timing{EtcdPull: 3 * time.Second}})
	s.create(s.cluster("shop", 1, 0))
	m := s.awaitBootstrapMachine("shop")
	s.awaitBootstrapRequests("shop", m, 1)
	if kc := s.get("shop"); isTrue(kc, v1alpha1.ConditionBootstrapped) || kc.Status.BootstrapRequest == nil {
		t.Errorf("etcd is not bootstrapped: condition Bootstrapped is %t, request %v", isTrue(kc, v1alpha1.ConditionBootstrapped), kc.Status.BootstrapRequest)
	}
	if err := s.fleet.Reboot(string(m.UID)); err != nil {
		t.Fatal(err)
	}
	kc := s.awaitRunning("shop")
	s.awaitBootstrapRequests("shop", m, 1)
	if !isTrue(kc, v1alpha1.ConditionBootstrapped) || kc.Status.BootstrapRequest != nil {
		t.Errorf("etcd is bootstrapped: condition Bootstrapped is %t, request %v", isTrue(kc, v1alpha1.ConditionBootstrapped), kc.Status.BootstrapRequest)
	}
}

// TestTalosReportsWhatItWaitsFor has a control plane pull etcd's image for longer than a delivery
// waits.
func TestTalosReportsWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{timing: simtalos.Timing{EtcdPull: time.Hour}})
	s.create(s.cluster("shop", 1, 0))
	s.awaitReason("shop", "WaitingForEtcd", "node shop-cp-0 to pull the image of etcd", "Talos on shop-cp-0 is running", "etcd not running")
	if got := s.get("shop").Status.Message; strings.Contains(got, "delete Machine") || strings.Contains(got, "0 machines") {
		t.Errorf("the message names a remedy that destroys a healthy node: %s", got)
	}
}

// TestPatchBeforeRunning adds a registry mirror while the only control plane waits for etcd's image.
func TestPatchBeforeRunning(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{timing: simtalos.Timing{EtcdPull: time.Hour}})
	s.create(s.cluster("shop", 1, 0))
	s.awaitReason("shop", "WaitingForEtcd", "shop-cp-0")
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mirror"}, Data: map[string]string{
		"mirror.yaml": "machine:\n  registries:\n    mirrors:\n      ghcr.io:\n        endpoints: [https://mirror.example.com]\n",
	}})
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{All: []v1alpha1.ObjectName{"mirror"}}}
	})
	feed.Until(t, "the node has the mirror", func() (bool, string) {
		return strings.Contains(s.activeConfig("shop", "cp-0"), "mirror.example.com"), s.get("shop").Status.Message
	})
}

// awaitBootstrapRequests waits until a node has received exactly want bootstrap requests since its boot.
func (s *env) awaitBootstrapRequests(cluster string, m *v1alpha1.Machine, want int) {
	s.Helper()
	feed.Until(s, "the node has a bootstrap request", func() (bool, string) {
		ctx, c, end, err := talos.Connect(s.Context(), plan.Address(m), s.access(cluster), time.Minute)
		if err != nil {
			return false, err.Error()
		}
		defer end()
		log, err := c.Dmesg(ctx, false, false)
		if err != nil {
			return false, err.Error()
		}
		got := 0
		for part, err := log.Recv(); err == nil; part, err = log.Recv() {
			got += strings.Count(string(part.GetBytes()), "bootstrap request received")
		}
		if got > want {
			s.Fatalf("node %s has received %d bootstrap requests in one boot, want %d", m.Name, got, want)
		}
		return got == want, ""
	})
}
