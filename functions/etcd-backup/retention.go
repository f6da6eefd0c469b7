package main

import (
	"context"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// applyRetention deletes all but the newest spec.retention snapshots, and lists these in the status. Of several attempts at one snapshot, it keeps
// the one that the status has.
func (f *function) applyRetention(ctx context.Context, b *v1alpha1.EtcdBackup, kept store) error {
	files, err := kept.List(ctx, folderOf(b))
	if err != nil {
		return err
	}
	sums := map[string]string{}
	for _, recorded := range b.Status.Backups {
		sums[recorded.Name] = recorded.SHA256
	}
	var newest []snapshot
	for _, s := range snapshotsOf(b, files, func(name string) bool { return sums[name] != "" }) {
		isOtherAttempt := len(newest) > 0 && newest[len(newest)-1].due == s.due
		if !isOtherAttempt && len(newest) < int(max(b.Spec.Retention, 1)) {
			newest = append(newest, s)
			continue
		}
		if err := deleteSnapshot(ctx, kept, s.name); err != nil {
			return err
		}
	}
	b.Status.BackupCount, b.Status.Backups = int32(len(newest)), nil
	for _, s := range newest[:min(len(newest), mostListed)] {
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
