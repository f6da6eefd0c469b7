package main

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// keyGenerationTimeout is how long another delivery may take to generate the keys.
const keyGenerationTimeout = 30 * time.Second

// keyGenerator generates the keys of clusters.
type keyGenerator struct {
	secrets  *secretStore
	machines *machineStore
	status   *statusWriter
	now      func() time.Time
}

// ensure reads the keys of the cluster, or generates them once: nodes that have their
// configuration know no other keys. Because an RSA key takes a second of CPU, a delivery records it
// in the status first, and other deliveries leave it to this one. If it fails, its event is
// redelivered and generates them. Of deliveries that generate other keys, the first one stores them.
func (g *keyGenerator) ensure(ctx context.Context, c *cluster) error {
	var err error
	if c.observed.keys, err = g.secrets.readKeys(ctx, c.KubernetesCluster); err != nil {
		return err
	}
	if c.observed.keys == nil {
		if c.hasKeysInUse() {
			c.report.apiUnanswered = true
			return reconcile.UserError{Reason: "KeysLost", Message: fmt.Sprintf(
				"Secret %s is gone, and nodes know no other keys than those: restore it from a backup, or delete the cluster and create it again", secretName(c.KubernetesCluster, pkiSecret))}
		}
		if plan.ServiceAccountKey(c.KubernetesCluster) == v1alpha1.ServiceAccountKeyRSA {
			if c.isGeneratedByAnother(g.now()) {
				return reconcile.WaitError{Reason: reasonGenerating, Message: "waiting for the cluster keys to be generated"}
			}
			if err := g.recordGeneration(ctx, c); err != nil {
				return err
			}
		}
		if c.observed.keys, err = g.secrets.createKeys(ctx, c.KubernetesCluster, c.plan.Contract); err != nil {
			return err
		}
		if err := g.machines.read(ctx, c); err != nil {
			return err
		}
	}
	c.report.keysCreated = true
	return nil
}

// hasKeysInUse reports whether a node has or may have a configuration with the keys, or etcd is
// bootstrapped.
func (c *cluster) hasKeysInUse() bool {
	if isTrue(c.KubernetesCluster, v1alpha1.ConditionBootstrapped) || c.observed.hasNodes() {
		return true
	}
	for _, m := range c.observed.machines {
		if plan.HasMachineConfig(m) {
			return true
		}
	}
	return false
}

// recordGeneration writes into the status that this delivery generates the keys. Of two
// deliveries, one gets a conflict.
func (g *keyGenerator) recordGeneration(ctx context.Context, c *cluster) error {
	meta.RemoveStatusCondition(&c.Status.Conditions, conditionCredentials)
	setStatus(c, reconcile.WaitError{Reason: reasonGenerating, Message: "generating the cluster keys"})
	return g.status.patch(ctx, c)
}

// isGeneratedByAnother reports whether the delivery of another event has recently begun to
// generate the keys.
func (c *cluster) isGeneratedByAnother(now time.Time) bool {
	made := meta.FindStatusCondition(c.Status.Conditions, conditionCredentials)
	if made == nil || made.Reason != reasonGenerating || now.Sub(made.LastTransitionTime.Time) >= keyGenerationTimeout {
		return false
	}
	return c.eventID == "" || made.Message != c.keyGenerationMessage()
}
