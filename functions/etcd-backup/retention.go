package main

import (
	"context"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// applyRetention deletes all but the newest spec.retention snapshots, and lists these in the
// status.
func (f *function) applyRetention(ctx context.Context, b *v1alpha1.EtcdBackup, kept store) error {
	files, err := kept.List(ctx, folderOf(b))
	if err != nil {
		return err
	}
	snapshots := snapshotsOf(b, files)
	most := min(int(max(b.Spec.Retention, 1)), len(snapshots))
	for _, old := range snapshots[most:] {
		for _, name := range []string{old.name + hashEnding, old.name} {
			if err := kept.Delete(ctx, name); err != nil {
				return err
			}
		}
	}
	sums := map[string]string{}
	for _, old := range b.Status.Backups {
		sums[old.Name] = old.SHA256
	}
	b.Status.BackupCount, b.Status.Backups = int32(most), nil
	for _, s := range snapshots[:min(most, mostListed)] {
		b.Status.Backups = append(b.Status.Backups, v1alpha1.BackupFile{Name: s.name, Size: s.size, SHA256: sums[s.name]})
	}
	return nil
}
