package talos

import (
	"bytes"
	"slices"
	"testing"
	"time"

	talosx509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	machineconfig "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// rotatingKeys returns the keys of the test's cluster, with a next set.
func rotatingKeys(t *testing.T) *Keys {
	t.Helper()
	data, err := WithNewAuthorities(testBundle(), time.Now(), config.TalosVersion1_13)
	if err != nil {
		t.Fatal(err)
	}
	next, err := DecodeBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	return &Keys{Present: testBundle(), Next: next, Rotation: "2026-11"}
}

// in returns the keys in a phase. Before and after a rotation there is one set.
func (k *Keys) in(phase v1alpha1.RotationPhase) *Keys {
	switch phase {
	case "":
		return &Keys{Present: k.Present}
	case "done":
		return &Keys{Present: k.Next}
	default:
		return &Keys{Present: k.Present, Next: k.Next, Phase: phase}
	}
}

// TestNewAuthorities creates the keys of a rotation, which keep everything else of the present ones.
func TestNewAuthorities(t *testing.T) {
	t.Parallel()
	k := rotatingKeys(t)
	present, next := *k.Present, *k.Next
	if bytes.Equal(present.Certs.OS.Key, next.Certs.OS.Key) || bytes.Equal(present.Certs.K8s.Key, next.Certs.K8s.Key) {
		t.Error("an authority was not replaced")
	}
	for what, same := range map[string]bool{
		"etcd":             bytes.Equal(present.Certs.Etcd.Key, next.Certs.Etcd.Key),
		"the aggregator":   bytes.Equal(present.Certs.K8sAggregator.Key, next.Certs.K8sAggregator.Key),
		"service accounts": bytes.Equal(present.Certs.K8sServiceAccount.Key, next.Certs.K8sServiceAccount.Key),
		"the cluster":      *present.Cluster == *next.Cluster, "secrets": *present.Secrets == *next.Secrets, "trustd": *present.TrustdInfo == *next.TrustdInfo,
	} {
		if !same {
			t.Errorf("the keys of %s changed", what)
		}
	}
}

// TestNeighbouringPhases renders nodes of each phase. Nodes of adjacent phases accept each other's
// certificates, and the certificate of the function in both phases.
func TestNeighbouringPhases(t *testing.T) {
	t.Parallel()
	k := rotatingKeys(t)
	if k.in(v1alpha1.RotationAccepting).InPhaseBefore().Phase != "" || k.in(v1alpha1.RotationRemovingTalos).InPhaseBefore().Phase != v1alpha1.RotationRemovingKubernetes {
		t.Error("the phases have another order backwards")
	}
	phases := []v1alpha1.RotationPhase{"", v1alpha1.RotationAccepting, v1alpha1.RotationIssuing, v1alpha1.RotationRemovingKubernetes, v1alpha1.RotationRemovingTalos, v1alpha1.RotationFinishing, "done"}
	type trust struct{ signs, accepts [][]byte }
	shown := func(role string, phase v1alpha1.RotationPhase) trust {
		t.Helper()
		p, err := Render(ClusterConfig{
			Name: "shop", Endpoint: "https://192.168.10.5:6443", Talos: "1.13.9", Contract: config.TalosVersion1_13,
			Disk: "/dev/vda", Installer: "i:v1.13.9", Keys: k.in(phase),
		}, NodeConfig{Name: "shop-x-0", Role: role, Version: "1.34.13"})
		if err != nil {
			t.Fatalf("%s in %q: %v", role, phase, err)
		}
		c := p.RawV1Alpha1()
		worker := role == v1alpha1.RoleWorker
		if (len(c.MachineConfig.MachineCA.Key) == 0) != worker || (len(c.ClusterConfig.ClusterCA.Key) == 0) != worker {
			t.Errorf("%s in %q: has a signing key: %t", role, phase, worker)
		}
		s := trust{signs: [][]byte{c.MachineConfig.MachineCA.Crt, c.ClusterConfig.ClusterCA.Crt}}
		s.accepts = slices.Clone(s.signs)
		for _, ca := range slices.Concat(c.MachineConfig.MachineAcceptedCAs, c.ClusterConfig.ClusterAcceptedCAs) {
			s.accepts = append(s.accepts, ca.Crt)
		}
		return s
	}
	accepts := func(s trust, crt []byte) bool {
		return slices.ContainsFunc(s.accepts, func(a []byte) bool { return bytes.Equal(a, crt) })
	}
	for i, phase := range phases[1:] {
		for _, one := range []string{v1alpha1.RoleControlPlane, v1alpha1.RoleWorker} {
			earlier, later := shown(one, phases[i]), shown(v1alpha1.RoleControlPlane, phase)
			for j := range 2 {
				if !accepts(earlier, later.signs[j]) || !accepts(later, earlier.signs[j]) {
					t.Errorf("a %s in %q and a control plane in %q reject each other's certificates", one, phases[i], phase)
				}
			}
			for _, in := range []v1alpha1.RotationPhase{phases[i], phase} {
				if own := k.in(in).issuer().Certs.OS.Crt; !accepts(earlier, own) || !accepts(later, own) {
					t.Errorf("the function is rejected in %q or %q with its certificate of %q", phases[i], phase, in)
				}
			}
		}
	}
}

// TestSetAuthorities changes the authorities of a configuration with an authority that a user has
// added.
func TestSetAuthorities(t *testing.T) {
	t.Parallel()
	k := rotatingKeys(t)
	theirs := &talosx509.PEMEncodedCertificate{Crt: []byte("theirs")}
	c := &machineconfig.Config{
		MachineConfig: &machineconfig.MachineConfig{MachineType: "worker", MachineAcceptedCAs: []*talosx509.PEMEncodedCertificate{theirs}},
		ClusterConfig: &machineconfig.ClusterConfig{},
	}
	for _, tc := range []struct {
		phase             v1alpha1.RotationPhase
		talos, kubernetes int
	}{
		{v1alpha1.RotationAccepting, 2, 1}, {v1alpha1.RotationIssuing, 2, 1}, {v1alpha1.RotationRemovingKubernetes, 2, 0}, {v1alpha1.RotationRemovingTalos, 1, 0},
	} {
		for range 2 { // a second call changes nothing
			if err := k.in(tc.phase).setAuthorities(c); err != nil {
				t.Fatal(err)
			}
			accepted := c.MachineConfig.MachineAcceptedCAs
			if len(accepted) != tc.talos || len(c.ClusterConfig.ClusterAcceptedCAs) != tc.kubernetes || accepted[len(accepted)-1] != theirs {
				t.Errorf("%s: accepts %d and %d authorities, want %d and %d, with the user's last", tc.phase, len(accepted), len(c.ClusterConfig.ClusterAcceptedCAs), tc.talos, tc.kubernetes)
			}
		}
	}
}
