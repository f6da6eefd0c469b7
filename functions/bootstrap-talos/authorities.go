package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	talos "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// nextPKISecret is what the name of the Secret with the next keys of a cluster ends in,
// while its authorities are rotated.
const nextPKISecret = pkiSecret + "-next"

// keys are the keys of a cluster. During a rotation there are two sets, which differ only in
// the authorities of the Talos API and of Kubernetes.
type keys struct {
	// present is the set in the Secret that outlives rotations. rotated is the rotation that
	// made it, or that the spec named when it was made.
	present *secrets.Bundle
	rotated string
	// next is the other set, nil outside of a rotation. rotation and phase are from its Secret.
	next     *secrets.Bundle
	rotation string
	phase    v1alpha1.RotationPhase
	// presentSecret and nextSecret are the Secrets as they were read, nil where there is none.
	presentSecret, nextSecret *corev1.Secret
}

// issuer is the set whose authorities sign certificates in this phase.
func (k *keys) issuer() *secrets.Bundle {
	if k.next == nil || k.phase == "" || k.phase == v1alpha1.RotationAccepting {
		return k.present
	}
	return k.next
}

// acceptedTalos is the authority of the Talos API that nodes accept in this phase beside the
// one that signs, and acceptedKubernetes that of Kubernetes. They are nil where there is none.
func (k *keys) acceptedTalos() []byte {
	if other := k.other(v1alpha1.RotationAccepting, v1alpha1.RotationIssuing, v1alpha1.RotationRemovingKubernetes); other != nil {
		return other.Certs.OS.Crt
	}
	return nil
}

func (k *keys) acceptedKubernetes() []byte {
	if other := k.other(v1alpha1.RotationAccepting, v1alpha1.RotationIssuing); other != nil {
		return other.Certs.K8s.Crt
	}
	return nil
}

// other is the set that does not sign, in some phases of a rotation, and otherwise nil.
func (k *keys) other(phases ...v1alpha1.RotationPhase) *secrets.Bundle {
	switch {
	case k.next == nil || !slices.Contains(phases, k.phase):
		return nil
	case k.issuer() == k.next:
		return k.present
	default:
		return k.next
	}
}

// trustedTalos and trustedKubernetes are the authorities that clients trust in this phase.
func (k *keys) trustedTalos() []byte {
	return slices.Concat(k.issuer().Certs.OS.Crt, k.acceptedTalos())
}

func (k *keys) trustedKubernetes() []byte {
	return slices.Concat(k.issuer().Certs.K8s.Crt, k.acceptedKubernetes())
}

// access is the function's own to the nodes: with a certificate that each node accepts in
// this phase, trusting both authorities, since a node may be a phase behind.
func (k *keys) access() (*access, error) {
	if k.next == nil {
		return accessTo(k.present)
	}
	return accessTo(k.issuer(), k.present, k.next)
}

// before are the keys in the phase before this one, and before the first in no phase.
func (k *keys) before() *keys {
	b := *k
	b.phase = ""
	for phase, next := range phaseAfter {
		if next == k.phase {
			b.phase = phase
		}
	}
	return &b
}

// same reports whether two reads found the same keys in the same phase.
func (k *keys) same(other *keys) bool {
	return k.present.Cluster.ID == other.present.Cluster.ID && k.phase == other.phase && k.rotation == other.rotation &&
		bytes.Equal(k.trustedTalos(), other.trustedTalos()) && bytes.Equal(k.trustedKubernetes(), other.trustedKubernetes())
}

// wantedRotation is the value of the field that starts a rotation.
func wantedRotation(kc *v1alpha1.KubernetesCluster) string {
	if kc.Spec.Talos == nil {
		return ""
	}
	return kc.Spec.Talos.RotateAuthorities
}

// isRotating reports whether a rotation is under way, by what the status says.
func isRotating(kc *v1alpha1.KubernetesCluster) bool {
	return kc.Status.Authorities != nil && kc.Status.Authorities.Phase != ""
}

// needsRotation reports whether a rotation is under way, or the spec asks for one that is not
// done.
func needsRotation(kc *v1alpha1.KubernetesCluster) bool {
	wanted := wantedRotation(kc)
	return isRotating(kc) || (wanted != "" && (kc.Status.Authorities == nil || kc.Status.Authorities.Completed != wanted))
}

// readKeys returns the keys of a cluster, or nil where they have not been made. It looks for
// those of a rotation where the cluster has or may have begun one.
func (f *function) readKeys(ctx context.Context, kc *v1alpha1.KubernetesCluster) (*keys, error) {
	k := &keys{}
	var err error
	if k.presentSecret, k.present, err = f.readBundle(ctx, kc, pkiSecret); err != nil {
		return nil, err
	}
	if k.present != nil {
		k.rotated = k.presentSecret.Annotations[v1alpha1.AnnotationRotation]
	}
	if wanted := wantedRotation(kc); k.present != nil && !isRotating(kc) && (wanted == "" || wanted == k.rotated) {
		return k, nil
	}
	return f.readNextKeys(ctx, kc, k)
}

// readNextKeys adds the keys of a rotation to those of a cluster. While the present ones are
// replaced at its end, the next ones are the only ones.
func (f *function) readNextKeys(ctx context.Context, kc *v1alpha1.KubernetesCluster, k *keys) (*keys, error) {
	var err error
	if k.nextSecret, k.next, err = f.readBundle(ctx, kc, nextPKISecret); err != nil {
		return nil, err
	}
	if k.next == nil && k.presentSecret != nil && isRotating(kc) { // the rotation may have ended between the two reads
		k.presentSecret, k.present, err = f.readBundle(ctx, kc, pkiSecret)
		if err != nil || k.present == nil {
			return nil, err
		}
		k.rotated = k.presentSecret.Annotations[v1alpha1.AnnotationRotation]
	}
	if k.next != nil {
		k.rotation = k.nextSecret.Annotations[v1alpha1.AnnotationRotation]
		k.phase = v1alpha1.RotationPhase(k.nextSecret.Annotations[v1alpha1.AnnotationRotationPhase])
	}
	switch {
	case k.next != nil && k.phase != v1alpha1.RotationFinishing && phaseAfter[k.phase] == "":
		return nil, fault{"RotationDamaged", fmt.Sprintf("the annotation %s of Secret %s is %q, which is no phase of a rotation: write that of status.authorities.phase",
			v1alpha1.AnnotationRotationPhase, k.nextSecret.Name, k.phase)}
	case k.present == nil && k.phase == v1alpha1.RotationFinishing:
		k.present = k.next
	case k.present == nil:
		return nil, nil
	}
	return k, nil
}

// readBundle reads one set of keys. An error never means that it is missing: what exists must
// not be made again.
func (f *function) readBundle(ctx context.Context, kc *v1alpha1.KubernetesCluster, name string) (*corev1.Secret, *secrets.Bundle, error) {
	secret := &corev1.Secret{}
	err := f.kube.Get(ctx, kc.Namespace, secretName(kc, name), secret)
	if kube.NotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if err := belongs(secret, kc); err != nil {
		return nil, nil, err
	}
	bundle, err := decodeBundle(secret.Data[pkiKey])
	return secret, bundle, err
}

// keysSecret is an immutable Secret with keys that were made for a rotation.
func keysSecret(kc *v1alpha1.KubernetesCluster, name, rotation string, data []byte) *corev1.Secret {
	secret := secretOf(kc, name, pkiKey, data)
	immutable := true
	secret.Immutable = &immutable
	if rotation != "" {
		secret.Annotations = map[string]string{v1alpha1.AnnotationRotation: rotation}
	}
	return secret
}

// withNewAuthorities is a set of keys with other authorities of the Talos API and of
// Kubernetes, in the form in which it is kept.
func withNewAuthorities(present *secrets.Bundle, now time.Time, contract *talosconfig.VersionContract) ([]byte, error) {
	api, err := secrets.NewTalosCA(now)
	if err != nil {
		return nil, fmt.Errorf("generate authority of the Talos API: %w", err)
	}
	kubernetes, err := secrets.NewKubernetesCA(now, contract)
	if err != nil {
		return nil, fmt.Errorf("generate authority of Kubernetes: %w", err)
	}
	next, certs := *present, *present.Certs
	next.Certs = &certs
	certs.OS = &x509.PEMEncodedCertificateAndKey{Crt: api.CrtPEM, Key: api.KeyPEM}
	certs.K8s = &x509.PEMEncodedCertificateAndKey{Crt: kubernetes.CrtPEM, Key: kubernetes.KeyPEM}
	return encodeBundle(&next)
}

// setAuthorities has a configuration name the authorities of this phase, and leaves those
// that somebody has added to it. Only control planes have the keys that sign.
func (k *keys) setAuthorities(c *talos.Config) error {
	if c.MachineConfig == nil || c.ClusterConfig == nil {
		return errors.New("it has no Kubernetes")
	}
	issuer := k.issuer().Certs
	api, kubernetes := &x509.PEMEncodedCertificateAndKey{Crt: issuer.OS.Crt}, &x509.PEMEncodedCertificateAndKey{Crt: issuer.K8s.Crt}
	if c.Machine().Type().IsControlPlane() {
		api, kubernetes = issuer.OS, issuer.K8s
	}
	c.MachineConfig.MachineCA, c.ClusterConfig.ClusterCA = api, kubernetes
	var ours [][]byte
	for _, b := range []*secrets.Bundle{k.present, k.next} {
		if b != nil {
			ours = append(ours, b.Certs.OS.Crt, b.Certs.K8s.Crt)
		}
	}
	c.MachineConfig.MachineAcceptedCAs = accept(c.MachineConfig.MachineAcceptedCAs, ours, k.acceptedTalos())
	c.ClusterConfig.ClusterAcceptedCAs = accept(c.ClusterConfig.ClusterAcceptedCAs, ours, k.acceptedKubernetes())
	return nil
}

// accept is a list of authorities with one of ours, or with none where that is nil.
func accept(list []*x509.PEMEncodedCertificate, ours [][]byte, accepted []byte) []*x509.PEMEncodedCertificate {
	list = slices.DeleteFunc(slices.Clone(list), func(ca *x509.PEMEncodedCertificate) bool {
		return slices.ContainsFunc(ours, func(crt []byte) bool { return bytes.Equal(crt, ca.Crt) })
	})
	if accepted != nil {
		list = append([]*x509.PEMEncodedCertificate{{Crt: accepted}}, list...)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// withAuthorities is a configuration with the authorities of this phase, or nil where it has
// them already.
func (k *keys) withAuthorities(p talosconfig.Provider) ([]byte, error) {
	before, err := encode(p)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	next, err := p.PatchV1Alpha1(k.setAuthorities)
	if err != nil {
		return nil, fmt.Errorf("change configuration: %w", err)
	}
	after, err := encode(next)
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	if bytes.Equal(before, after) {
		return nil, nil
	}
	return after, nil
}
