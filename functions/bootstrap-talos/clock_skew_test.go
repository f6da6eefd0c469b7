package main

import (
	"testing"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// TestClockSkew creates a cluster of machines whose clocks are days ahead, until they reach a time
// server.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.skew.Store(int64(72 * time.Hour))
	s.create(s.cluster("shop", 1, 0))
	s.awaitReason("shop", "ClockSkew", "shop-cp-0", "reach a time server")
	if kc := s.get("shop"); kc.Status.Phase == v1alpha1.ClusterRunning || len(s.machines("shop")) != 1 {
		t.Errorf("the cluster is %s, with machines %v", kc.Status.Phase, s.machines("shop"))
	}
	s.skew.Store(0)
	if err := s.power(t.Context(), s.machine("shop-cp-0")); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("shop", "cp-0")
}
