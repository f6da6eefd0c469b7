package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// readCluster returns the KubernetesCluster of an EtcdBackup, or nil if it does not exist.
func (f *function) readCluster(ctx context.Context, b *v1alpha1.EtcdBackup) (*v1alpha1.KubernetesCluster, error) {
	kc := &v1alpha1.KubernetesCluster{}
	err := f.kube.Get(ctx, b.Namespace, b.Spec.ClusterName, kc)
	if kube.NotFound(err) {
		return nil, nil
	}
	return kc, err
}

// readTalosconfig returns the talosconfig of a cluster, which is nil if it does not exist.
func (f *function) readTalosconfig(ctx context.Context, b *v1alpha1.EtcdBackup, kc *v1alpha1.KubernetesCluster) ([]byte, error) {
	if kc == nil {
		return nil, reconcile.UserError{Reason: "ClusterNotFound", Message: fmt.Sprintf("KubernetesCluster %s does not exist in namespace %s: create it, or delete this backup", b.Spec.ClusterName, b.Namespace)}
	}
	if kc.Status.Secrets == nil || kc.Status.Secrets.Talosconfig == "" {
		return nil, reconcile.UserError{Reason: "ClusterNotReady", Message: fmt.Sprintf("waiting for KubernetesCluster %s to be Running for the first time", kc.Name)}
	}
	secret, err := f.readSecret(ctx, b.Namespace, kc.Status.Secrets.Talosconfig)
	if err != nil {
		return nil, err
	}
	return secret.Data["talosconfig"], nil
}

// clusterID returns the part of a cluster's UID that the names of its snapshots have.
func clusterID(uid string) string {
	const length = 8 // 32 random bits
	return uid[:min(len(uid), length)]
}

// isOf reports whether a snapshot is of a cluster, and not of an earlier one of its name:
//
//	has the UID of the cluster, or a former one of it      yes
//	has another UID                                        no
//	has none, and was due since the cluster was created    yes
//	has none, and was due before                           no: it may be the only copy of a deleted cluster
//
// Snapshots of earlier versions have no UID.
func (s snapshot) isOf(kc *v1alpha1.KubernetesCluster) bool {
	if s.cluster == "" {
		return s.due >= kc.CreationTimestamp.UTC().Format(dueLayout)
	}
	return slices.ContainsFunc(v1alpha1.UIDs(kc), func(uid string) bool { return clusterID(uid) == s.cluster })
}

// hasSnapshotOfOther reports whether the snapshots in the status are of an earlier cluster of the same name than kc, which is nil if
// none exists. It is false if none of them names its cluster.
func hasSnapshotOfOther(b *v1alpha1.EtcdBackup, kc *v1alpha1.KubernetesCluster) bool {
	if kc == nil {
		return false
	}
	hasOther := false
	for _, recorded := range b.Status.Backups {
		s, ok := parseSnapshot(b, file{name: recorded.Name})
		if ok && s.isOf(kc) {
			return false
		}
		hasOther = hasOther || (ok && s.cluster != "")
	}
	return hasOther
}
