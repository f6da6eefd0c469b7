package main

import (
	"context"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// applyRetention deletes all but the newest spec.retention snapshots of a cluster, and lists what is left in the status. Of several attempts at one
// snapshot, it keeps the one that the status has. Snapshots of an earlier cluster of the same name stay, because they may be the only copy of its
// data. Without a cluster it does nothing.
func (f *function) applyRetention(ctx context.Context, b *v1alpha1.EtcdBackup, kc *v1alpha1.KubernetesCluster, kept store) error {
	if kc == nil {
		return nil
	}
	files, err := kept.List(ctx, folderOf(b))
	if err != nil {
		return err
	}
	sums := map[string]string{}
	for _, recorded := range b.Status.Backups {
		sums[recorded.Name] = recorded.SHA256
	}
	var left []snapshot
	count, lastDue := 0, ""
	for _, s := range snapshotsOf(b, files, func(name string) bool { return sums[name] != "" }) {
		isOwn := s.isOf(kc)
		if isOwn && (s.due == lastDue || count >= int(max(b.Spec.Retention, 1))) {
			if err := deleteSnapshot(ctx, kept, s.name); err != nil {
				return err
			}
			continue
		}
		if isOwn {
			count, lastDue = count+1, s.due
		}
		left = append(left, s)
	}
	b.Status.BackupCount, b.Status.Backups = int32(len(left)), nil
	for _, s := range left[:min(len(left), mostListed)] {
		b.Status.Backups = append(b.Status.Backups, v1alpha1.BackupFile{Name: s.name, Size: s.size, SHA256: sums[s.name]})
	}
	return nil
}

// deleteSnapshot deletes a snapshot and the file with its hash. The hash goes first: a snapshot that is left is found again.
func deleteSnapshot(ctx context.Context, kept store, name string) error {
	if err := kept.Delete(ctx, name+hashEnding); err != nil {
		return err
	}
	return kept.Delete(ctx, name)
}
