package main

import (
	"context"
	"fmt"
	"time"

	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// nextPKISecret is what the name of the Secret with the next keys of a cluster ends in,
// while its authorities are rotated.
const nextPKISecret = pkiSecret + "-next"

// readKeys returns the keys of a cluster, or nil where they have not been made. It looks for
// those of a rotation where the cluster has or may have begun one.
func (f *function) readKeys(ctx context.Context, kc *v1alpha1.KubernetesCluster) (*talos.Keys, error) {
	k := &talos.Keys{}
	var err error
	if k.PresentSecret, k.Present, err = f.readBundle(ctx, kc, pkiSecret); err != nil {
		return nil, err
	}
	if k.Present != nil {
		k.Rotated = k.PresentSecret.Annotations[v1alpha1.AnnotationRotation]
	}
	if wanted := plan.WantedRotation(kc); k.Present != nil && !plan.IsRotating(kc) && (wanted == "" || wanted == k.Rotated) {
		return k, nil
	}
	return f.readNextKeys(ctx, kc, k)
}

// readNextKeys adds the keys of a rotation to those of a cluster. While the present ones are
// replaced at its end, the next ones are the only ones.
func (f *function) readNextKeys(ctx context.Context, kc *v1alpha1.KubernetesCluster, k *talos.Keys) (*talos.Keys, error) {
	var err error
	if k.NextSecret, k.Next, err = f.readBundle(ctx, kc, nextPKISecret); err != nil {
		return nil, err
	}
	if k.Next == nil && k.PresentSecret != nil && plan.IsRotating(kc) { // the rotation may have ended between the two reads
		k.PresentSecret, k.Present, err = f.readBundle(ctx, kc, pkiSecret)
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
		return nil, reconcile.UserError{Reason: "RotationDamaged", Message: fmt.Sprintf("the annotation %s of Secret %s is %q, which is no phase of a rotation: write that of status.authorities.phase",
			v1alpha1.AnnotationRotationPhase, k.NextSecret.Name, k.Phase)}
	case k.Present == nil && k.Phase == v1alpha1.RotationFinishing:
		k.Present = k.Next
	case k.Present == nil:
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
	if err := manifests.CheckOwner(secret, kc); err != nil {
		return nil, nil, err
	}
	bundle, err := talos.DecodeBundle(secret.Data[pkiKey])
	return secret, bundle, err
}

// keysSecret is an immutable Secret with keys that were made for a rotation.
func keysSecret(kc *v1alpha1.KubernetesCluster, name, rotation string, data []byte) *corev1.Secret {
	secret := newSecret(kc, name, pkiKey, data)
	immutable := true
	secret.Immutable = &immutable
	if rotation != "" {
		secret.Annotations = map[string]string{v1alpha1.AnnotationRotation: rotation}
	}
	return secret
}

// keyGenerationTimeout is how long keys are given to be made by whoever has begun.
const keyGenerationTimeout = 30 * time.Second

// ensureCredentials reads the keys of the cluster, or makes them once: nodes that have
// their configuration know no other keys. Making them takes a second of CPU, so a
// delivery that begins says so in the status, and others leave it to that one. If it
// fails, its event comes again, and goes on.
func (f *function) ensureCredentials(ctx context.Context, c *cluster) error {
	var err error
	if c.observed.keys, err = f.readKeys(ctx, c.KubernetesCluster); err != nil {
		return err
	}
	if c.observed.keys == nil {
		if c.hasKeysInUse() {
			c.report.apiUnanswered = true
			return reconcile.UserError{Reason: "KeysLost", Message: fmt.Sprintf(
				"Secret %s is gone, and nodes know no other keys than those: restore it from a backup, or delete the cluster and create it again", secretName(c.KubernetesCluster, pkiSecret))}
		}
		if c.isGeneratedByAnother(f.now()) {
			return reconcile.WaitError{Reason: reasonGenerating, Message: "waits for the cluster's keys to be made"}
		}
		if err := f.recordKeyGeneration(ctx, c); err != nil {
			return err
		}
		if c.observed.keys, err = f.createKeys(ctx, c.KubernetesCluster, c.plan.Contract); err != nil {
			return err
		}
		if err := f.readMachines(ctx, c); err != nil {
			return err
		}
	}
	c.report.keysCreated = true
	if err := c.recordRotation(metav1.NewTime(f.now())); err != nil {
		return err
	}
	c.connections.credentials, err = c.observed.keys.Credentials()
	return err
}

// hasKeysInUse tells whether the keys of the cluster are in use: a node has or may have its
// configuration, or etcd has begun, whatever has become of that node.
func (c *cluster) hasKeysInUse() bool {
	if isTrue(c.KubernetesCluster, v1alpha1.ConditionBootstrapped) || c.hasNodes() {
		return true
	}
	for _, m := range c.observed.machines {
		if plan.HasMachineConfig(m) {
			return true
		}
	}
	return false
}

// recordKeyGeneration writes into the status that this delivery makes the keys. Of two that
// begin at once, one gets a conflict.
func (f *function) recordKeyGeneration(ctx context.Context, c *cluster) error {
	meta.RemoveStatusCondition(&c.Status.Conditions, conditionCredentials)
	setStatus(c, reconcile.WaitError{Reason: reasonGenerating, Message: "makes the cluster's keys"})
	return f.patchStatus(ctx, c)
}

// isGeneratedByAnother tells whether a delivery has begun to make the keys, not long ago, that
// is not an earlier one of the event that is handled.
func (c *cluster) isGeneratedByAnother(now time.Time) bool {
	made := meta.FindStatusCondition(c.Status.Conditions, conditionCredentials)
	if made == nil || made.Reason != reasonGenerating || now.Sub(made.LastTransitionTime.Time) >= keyGenerationTimeout {
		return false
	}
	return c.eventID == "" || made.Message != c.keyGenerationMessage()
}

// keyGenerationMessage says who makes the keys.
func (c *cluster) keyGenerationMessage() string {
	return "the cluster's keys are being made for event " + c.eventID
}

// Secrets of a cluster, by what their names end in, and their keys.
const (
	pkiSecret = "talos-secrets"
	pkiKey    = "secrets.yaml"
)

// createKeys makes the keys of a cluster. Where somebody was faster, it returns
// theirs.
func (f *function) createKeys(ctx context.Context, kc *v1alpha1.KubernetesCluster, contract *talosconfig.VersionContract) (*talos.Keys, error) {
	bundle, err := talos.NewBundle(f.now(), contract)
	if err != nil {
		return nil, err
	}
	data, err := talos.EncodeBundle(bundle)
	if err != nil {
		return nil, err
	}
	err = f.kube.Create(ctx, keysSecret(kc, pkiSecret, plan.WantedRotation(kc), data))
	if kube.AlreadyExists(err) {
		there, unread := f.readKeys(ctx, kc)
		if unread != nil || there != nil {
			return there, unread
		}
	}
	return &talos.Keys{Present: bundle, Rotated: plan.WantedRotation(kc)}, err // of one that was there and is gone too: it is tried again
}
