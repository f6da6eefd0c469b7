package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// createKeys generates the keys of a cluster and stores them. If another delivery was faster, it
// returns its keys.
func (s *secretStore) createKeys(ctx context.Context, kc *v1alpha1.KubernetesCluster, contract *config.VersionContract) (*talos.Keys, error) {
	bundle, err := talos.NewBundle(s.now(), contract, plan.ServiceAccountKey(kc))
	if err != nil {
		return nil, err
	}
	data, err := talos.EncodeBundle(bundle)
	if err != nil {
		return nil, err
	}
	err = s.kube.Create(ctx, keysSecret(kc, pkiSecret, plan.WantedRotation(kc), data))
	if kube.AlreadyExists(err) {
		there, unread := s.readKeys(ctx, kc)
		if unread != nil || there != nil {
			return there, unread
		}
	}
	return &talos.Keys{Present: bundle, Rotated: plan.WantedRotation(kc)}, err // of one that was there and is gone too: it is tried again
}

// readKeys returns the keys of a cluster, or nil if there are none. It reads the keys of a
// rotation if one may be under way.
func (s *secretStore) readKeys(ctx context.Context, kc *v1alpha1.KubernetesCluster) (*talos.Keys, error) {
	k := &talos.Keys{}
	var err error
	if k.PresentSecret, k.Present, err = s.readBundle(ctx, kc, pkiSecret); err != nil {
		return nil, err
	}
	if k.Present != nil {
		k.Rotated = k.PresentSecret.Annotations[v1alpha1.AnnotationRotation]
	}
	if wanted := plan.WantedRotation(kc); k.Present != nil && !plan.IsRotating(kc) && (wanted == "" || wanted == k.Rotated) {
		return k, nil
	}
	return s.readNextKeys(ctx, kc, k)
}

// readNextKeys adds the keys of a rotation to those of a cluster. At the end of a rotation they
// are the only ones for a moment.
func (s *secretStore) readNextKeys(ctx context.Context, kc *v1alpha1.KubernetesCluster, k *talos.Keys) (*talos.Keys, error) {
	var err error
	if k.NextSecret, k.Next, err = s.readBundle(ctx, kc, nextPKISecret); err != nil {
		return nil, err
	}
	if k.Next == nil && k.PresentSecret != nil && plan.IsRotating(kc) { // the rotation may have ended between the two reads
		k.PresentSecret, k.Present, err = s.readBundle(ctx, kc, pkiSecret)
		if err != nil || k.Present == nil {
			return nil, err
		}
		k.Rotated = k.PresentSecret.Annotations[v1alpha1.AnnotationRotation]
	}
	if k.Next != nil {
		k.Rotation = k.NextSecret.Annotations[v1alpha1.AnnotationRotation]
		k.Phase = v1alpha1.RotationPhase(k.NextSecret.Annotations[v1alpha1.AnnotationRotationPhase])
	}
	switch {
	case k.Next != nil && k.Phase != v1alpha1.RotationFinishing && plan.PhaseAfter[k.Phase] == "":
		return nil, reconcile.UserError{Reason: "RotationDamaged", Message: fmt.Sprintf("the annotation %s of Secret %s is %q, which is no phase of a rotation: write the value of status.authorities.phase",
			v1alpha1.AnnotationRotationPhase, k.NextSecret.Name, k.Phase)}
	case k.Present == nil && k.Phase == v1alpha1.RotationFinishing:
		k.Present = k.Next
	case k.Present == nil:
		return nil, nil
	}
	return k, nil
}

// readBundle reads one set of keys, nil if its Secret does not exist. A failed request is always
// an error, because keys that exist must not be generated again.
func (s *secretStore) readBundle(ctx context.Context, kc *v1alpha1.KubernetesCluster, name string) (*corev1.Secret, *secrets.Bundle, error) {
	secret := &corev1.Secret{}
	err := s.kube.Get(ctx, kc.Namespace, secretName(kc, name), secret)
	if kube.NotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if err := manifests.CheckOwner(secret, kc); err != nil {
		return nil, nil, err
	}
	bundle, err := talos.DecodeBundle(secret.Data[pkiKey])
	return secret, bundle, err
}

// keysSecret returns an immutable Secret with keys that were generated for a rotation.
func keysSecret(kc *v1alpha1.KubernetesCluster, name, rotation string, data []byte) *corev1.Secret {
	secret := newSecret(kc, name, pkiKey, data)
	immutable := true
	secret.Immutable = &immutable
	if rotation != "" {
		secret.Annotations = map[string]string{v1alpha1.AnnotationRotation: rotation}
	}
	return secret
}

// checkKeys returns an error if the keys of the cluster have changed since this delivery has
// read them. A Secret that is deleted early is replaced by other keys, and nodes with the first
// ones would not join.
func (s *secretStore) checkKeys(ctx context.Context, c *cluster) error {
	now, err := s.readKeys(ctx, c.KubernetesCluster)
	if hasRun := c.Status.Version != ""; err == nil && hasRun && now != nil && now.NextSecret == nil {
		now, err = s.readNextKeys(ctx, c.KubernetesCluster, now) // a rotation may have begun meanwhile
	}
	if err != nil {
		return err
	}
	if now == nil || !now.Equal(c.observed.keys) {
		return errors.New("the keys of the cluster have been replaced")
	}
	return nil
}
