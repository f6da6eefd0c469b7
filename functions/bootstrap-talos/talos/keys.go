package talos

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	talosx509 "github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machineconfig "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Keys are the keys of a cluster. During a rotation there are two sets, which differ only in the
// authorities of the Talos API and of Kubernetes.
type Keys struct {
	// Present is the set in the Secret that outlives rotations. Rotated is the rotation that made
	// it, or the one that the spec had when it was made.
	Present *secrets.Bundle
	Rotated string
	// Next is the other set, nil outside of a rotation. Rotation and Phase are from its Secret.
	Next     *secrets.Bundle
	Rotation string
	Phase    v1alpha1.RotationPhase
	// PresentSecret and NextSecret are the Secrets as they were read, nil if they do not exist.
	PresentSecret, NextSecret *corev1.Secret
}

// issuer returns the set whose authorities sign certificates in this phase.
func (k *Keys) issuer() *secrets.Bundle {
	if k.Next == nil || k.Phase == "" || k.Phase == v1alpha1.RotationAccepting {
		return k.Present
	}
	return k.Next
}

// acceptedTalos returns the second authority of the Talos API that nodes accept in this phase,
// or nil.
func (k *Keys) acceptedTalos() []byte {
	if other := k.other(v1alpha1.RotationAccepting, v1alpha1.RotationIssuing, v1alpha1.RotationRemovingKubernetes); other != nil {
		return other.Certs.OS.Crt
	}
	return nil
}

// acceptedKubernetes returns the second authority of Kubernetes that nodes accept in this phase,
// or nil.
func (k *Keys) acceptedKubernetes() []byte {
	if other := k.other(v1alpha1.RotationAccepting, v1alpha1.RotationIssuing); other != nil {
		return other.Certs.K8s.Crt
	}
	return nil
}

// other returns the set that does not sign if this phase is one of phases, and otherwise nil.
func (k *Keys) other(phases ...v1alpha1.RotationPhase) *secrets.Bundle {
	switch {
	case k.Next == nil || !slices.Contains(phases, k.Phase):
		return nil
	case k.issuer() == k.Next:
		return k.Present
	default:
		return k.Next
	}
}

// TrustedTalos returns the authorities of the Talos API that clients trust in this phase, as
// PEM.
func (k *Keys) TrustedTalos() []byte {
	return slices.Concat(k.issuer().Certs.OS.Crt, k.acceptedTalos())
}

// TrustedKubernetes returns the authorities of Kubernetes that clients trust in this phase, as
// PEM.
func (k *Keys) TrustedKubernetes() []byte {
	return slices.Concat(k.issuer().Certs.K8s.Crt, k.acceptedKubernetes())
}

// Credentials makes a client certificate that every node accepts in this phase. It trusts both
// authorities, because a node may be a phase behind.
func (k *Keys) Credentials() (*Credentials, error) {
	if k.Next == nil {
		return NewCredentials(k.Present)
	}
	return NewCredentials(k.issuer(), k.Present, k.Next)
}

// InPhaseBefore returns the keys in the phase before this one, or in no phase before the first.
func (k *Keys) InPhaseBefore() *Keys {
	b := *k
	b.Phase = ""
	for phase, next := range plan.PhaseAfter {
		if next == k.Phase {
			b.Phase = phase
		}
	}
	return &b
}

// Equal reports whether two reads have found the same keys in the same phase.
func (k *Keys) Equal(other *Keys) bool {
	return k.Present.Cluster.ID == other.Present.Cluster.ID && k.Phase == other.Phase && k.Rotation == other.Rotation &&
		bytes.Equal(k.TrustedTalos(), other.TrustedTalos()) && bytes.Equal(k.TrustedKubernetes(), other.TrustedKubernetes())
}

// setAuthorities writes the authorities of this phase into a configuration, and keeps authorities
// that a user has added. Only control planes get the private keys.
func (k *Keys) setAuthorities(c *machineconfig.Config) error {
	if c.MachineConfig == nil || c.ClusterConfig == nil {
		return errors.New("it has no Kubernetes")
	}
	issuer := k.issuer().Certs
	api, kubernetes := &talosx509.PEMEncodedCertificateAndKey{Crt: issuer.OS.Crt}, &talosx509.PEMEncodedCertificateAndKey{Crt: issuer.K8s.Crt}
	if c.Machine().Type().IsControlPlane() {
		api, kubernetes = issuer.OS, issuer.K8s
	}
	c.MachineConfig.MachineCA, c.ClusterConfig.ClusterCA = api, kubernetes
	var ours [][]byte
	for _, b := range []*secrets.Bundle{k.Present, k.Next} {
		if b != nil {
			ours = append(ours, b.Certs.OS.Crt, b.Certs.K8s.Crt)
		}
	}
	c.MachineConfig.MachineAcceptedCAs = acceptedAuthorities(c.MachineConfig.MachineAcceptedCAs, ours, k.acceptedTalos())
	c.ClusterConfig.ClusterAcceptedCAs = acceptedAuthorities(c.ClusterConfig.ClusterAcceptedCAs, ours, k.acceptedKubernetes())
	return nil
}

// acceptedAuthorities returns a list in which accepted replaces the authorities of the cluster.
// nil removes them.
func acceptedAuthorities(list []*talosx509.PEMEncodedCertificate, ours [][]byte, accepted []byte) []*talosx509.PEMEncodedCertificate {
	list = slices.DeleteFunc(slices.Clone(list), func(ca *talosx509.PEMEncodedCertificate) bool {
		return slices.ContainsFunc(ours, func(crt []byte) bool { return bytes.Equal(crt, ca.Crt) })
	})
	if accepted != nil {
		list = append([]*talosx509.PEMEncodedCertificate{{Crt: accepted}}, list...)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// withAuthorities returns a configuration with the authorities of this phase, or nil if it has
// them already.
func (k *Keys) withAuthorities(p talosconfig.Provider) ([]byte, error) {
	before, err := Encode(p)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	next, err := p.PatchV1Alpha1(k.setAuthorities)
	if err != nil {
		return nil, fmt.Errorf("change configuration: %w", err)
	}
	after, err := Encode(next)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	if bytes.Equal(before, after) {
		return nil, nil
	}
	return after, nil
}
