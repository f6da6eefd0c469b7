package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	talos "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// rotatingKeys are the keys of the test's cluster, with another set.
func rotatingKeys(t *testing.T) *keys {
	t.Helper()
	data, err := withNewAuthorities(testBundle(), time.Now(), config.TalosVersion1_13)
	if err != nil {
		t.Fatal(err)
	}
	next, err := decodeBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	return &keys{present: testBundle(), next: next, rotation: "2026-11"}
}

// in are the keys in a phase. Before and after a rotation there is one set of them.
func (k *keys) in(phase v1alpha1.RotationPhase) *keys {
	switch phase {
	case "":
		return &keys{present: k.present}
	case "done":
		return &keys{present: k.next}
	default:
		return &keys{present: k.present, next: k.next, phase: phase}
	}
}

// TestNewAuthorities makes the keys of a rotation, which have all else of the present ones.
func TestNewAuthorities(t *testing.T) {
	t.Parallel()
	k := rotatingKeys(t)
	present, next := *k.present, *k.next
	if bytes.Equal(present.Certs.OS.Key, next.Certs.OS.Key) || bytes.Equal(present.Certs.K8s.Key, next.Certs.K8s.Key) {
		t.Error("an authority stays")
	}
	for what, same := range map[string]bool{
		"etcd":             bytes.Equal(present.Certs.Etcd.Key, next.Certs.Etcd.Key),
		"the aggregator":   bytes.Equal(present.Certs.K8sAggregator.Key, next.Certs.K8sAggregator.Key),
		"service accounts": bytes.Equal(present.Certs.K8sServiceAccount.Key, next.Certs.K8sServiceAccount.Key),
		"the cluster":      *present.Cluster == *next.Cluster, "secrets": *present.Secrets == *next.Secrets, "trustd": *present.TrustdInfo == *next.TrustdInfo,
	} {
		if !same {
			t.Errorf("the keys of %s are others", what)
		}
	}
}

// TestNeighbouringPhases renders nodes of each phase. Two that are one phase apart accept each
// other's certificates, and the function's in both phases.
func TestNeighbouringPhases(t *testing.T) {
	t.Parallel()
	k := rotatingKeys(t)
	if k.in(v1alpha1.RotationAccepting).before().phase != "" || k.in(v1alpha1.RotationRemovingTalos).before().phase != v1alpha1.RotationRemovingKubernetes {
		t.Error("the phases have another order backwards")
	}
	phases := []v1alpha1.RotationPhase{"", v1alpha1.RotationAccepting, v1alpha1.RotationIssuing, v1alpha1.RotationRemovingKubernetes, v1alpha1.RotationRemovingTalos, v1alpha1.RotationFinishing, "done"}
	type trust struct{ signs, accepts [][]byte }
	shown := func(role string, phase v1alpha1.RotationPhase) trust {
		t.Helper()
		p, err := render(clusterConfig{
			name: "shop", endpoint: "https://192.168.10.5:6443", talos: "1.13.9", contract: config.TalosVersion1_13,
			disk: "/dev/vda", installer: "i:v1.13.9", keys: k.in(phase),
		}, nodeConfig{name: "shop-x-0", role: role, version: "1.34.13"})
		if err != nil {
			t.Fatalf("%s in %q: %v", role, phase, err)
		}
		c := p.RawV1Alpha1()
		worker := role == v1alpha1.RoleWorker
		if (len(c.MachineConfig.MachineCA.Key) == 0) != worker || (len(c.ClusterConfig.ClusterCA.Key) == 0) != worker {
			t.Errorf("%s in %q: has a key that signs: %t", role, phase, worker)
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
					t.Errorf("a %s in %q and a control plane in %q refuse each other's certificates", one, phases[i], phase)
				}
			}
			for _, in := range []v1alpha1.RotationPhase{phases[i], phase} {
				if own := k.in(in).issuer().Certs.OS.Crt; !accepts(earlier, own) || !accepts(later, own) {
					t.Errorf("the function is refused in %q or %q with its certificate of %q", phases[i], phase, in)
				}
			}
		}
	}
}

// TestSetAuthorities changes the authorities of a configuration that somebody has added one to.
func TestSetAuthorities(t *testing.T) {
	t.Parallel()
	k := rotatingKeys(t)
	theirs := &x509.PEMEncodedCertificate{Crt: []byte("theirs")}
	c := &talos.Config{
		MachineConfig: &talos.MachineConfig{MachineType: "worker", MachineAcceptedCAs: []*x509.PEMEncodedCertificate{theirs}},
		ClusterConfig: &talos.ClusterConfig{},
	}
	for _, tc := range []struct {
		phase             v1alpha1.RotationPhase
		talos, kubernetes int
	}{
		{v1alpha1.RotationAccepting, 2, 1}, {v1alpha1.RotationIssuing, 2, 1}, {v1alpha1.RotationRemovingKubernetes, 2, 0}, {v1alpha1.RotationRemovingTalos, 1, 0},
	} {
		for range 2 { // a second time changes nothing
			if err := k.in(tc.phase).setAuthorities(c); err != nil {
				t.Fatal(err)
			}
			accepted := c.MachineConfig.MachineAcceptedCAs
			if len(accepted) != tc.talos || len(c.ClusterConfig.ClusterAcceptedCAs) != tc.kubernetes || accepted[len(accepted)-1] != theirs {
				t.Errorf("%s: accepts %d and %d authorities, want %d and %d, and theirs last", tc.phase, len(accepted), len(c.ClusterConfig.ClusterAcceptedCAs), tc.talos, tc.kubernetes)
			}
		}
	}
}

func TestMirrorRotation(t *testing.T) {
	t.Parallel()
	one := &v1alpha1.AuthoritiesStatus{Rotation: "one", Phase: v1alpha1.RotationIssuing}
	for name, tc := range map[string]struct {
		reason   string
		wanted   string
		contract *config.VersionContract
		status   *v1alpha1.AuthoritiesStatus
		keys     keys
		want     string
		done     string
		err      string
	}{
		"never":       {"no rotation was ever asked for", "", config.TalosVersion1_13, nil, keys{}, "", "", ""},
		"asked":       {"the cluster has to be in order", "one", config.TalosVersion1_13, nil, keys{}, "WaitingForCluster", "", ""},
		"old":         {"Talos before 1.7 has no accepted authorities", "one", config.TalosVersion1_6, nil, keys{}, "TalosTooOld", "", ""},
		"at creation": {"the keys were made with the value", "one", config.TalosVersion1_13, nil, keys{rotated: "one"}, "AuthoritiesRotated", "one", ""},
		"under way":   {"the Secret says how far", "one", config.TalosVersion1_13, nil, keys{next: testBundle(), rotation: "one", phase: v1alpha1.RotationIssuing}, "Issuing", "", ""},
		"taken back":  {"what has begun is finished", "", config.TalosVersion1_13, one, keys{next: testBundle(), rotation: "one", phase: v1alpha1.RotationRemovingTalos}, "RemovingTalos", "", ""},
		"next keys gone": {"nodes have certificates of them", "one", config.TalosVersion1_13, one, keys{}, "", "",
			"KeysLost: Secret shop-talos-secrets-next is gone"},
		"ended":      {"the delivery died before it wrote the status", "one", config.TalosVersion1_13, &v1alpha1.AuthoritiesStatus{Rotation: "one", Phase: v1alpha1.RotationFinishing}, keys{rotated: "one"}, "AuthoritiesRotated", "one", ""},
		"another":    {"the first one is done", "two", config.TalosVersion1_13, &v1alpha1.AuthoritiesStatus{Completed: "one"}, keys{rotated: "one"}, "WaitingForCluster", "one", ""},
		"half begun": {"the status is written, and no keys are made", "one", config.TalosVersion1_13, &v1alpha1.AuthoritiesStatus{Rotation: "one", Phase: v1alpha1.RotationAccepting}, keys{}, "Accepting", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			kc.Spec.Talos, kc.Status.Authorities = &v1alpha1.TalosOptions{RotateAuthorities: tc.wanted}, tc.status
			c := &cluster{KubernetesCluster: kc, keys: &tc.keys}
			c.plan.contract = tc.contract
			err := c.mirrorRotation(metav1.Now())
			if (err == nil) != (tc.err == "") || (err != nil && !strings.HasPrefix(err.Error(), tc.err)) {
				t.Fatalf("%s: %v, want %q", tc.reason, err, tc.err)
			}
			if c.authorities.reason != tc.want || c.authorities.current != (tc.want == v1alpha1.ConditionAuthoritiesRotated) {
				t.Errorf("%s: the condition has %+v, want %q", tc.reason, c.authorities, tc.want)
			}
			if a := kc.Status.Authorities; tc.done != "" && (a == nil || a.Completed != tc.done || a.Phase != "") {
				t.Errorf("%s: the status has %+v, want completed %q", tc.reason, a, tc.done)
			}
		})
	}
}
