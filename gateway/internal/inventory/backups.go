package inventory

import (
	"cmp"
	"slices"
	"time"
)

// BackupState is how an EtcdBackup is doing, for metrics.
type BackupState struct {
	Namespace, Name string
	Ready           bool
	// LastSuccess is when the newest snapshot was due. It is zero if there is none.
	LastSuccess time.Time
}

// backupStates returns the states of EtcdBackups that are not being deleted, by namespace and name.
func backupStates(objects []*Object) []BackupState {
	all := make([]BackupState, 0, len(objects))
	for _, o := range objects {
		if !o.Deleting {
			all = append(all, BackupState{Namespace: o.Namespace, Name: o.Name, Ready: o.Readiness.Ready, LastSuccess: o.Facts.(*Backup).LastSuccess})
		}
	}
	slices.SortFunc(all, func(a, b BackupState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Backups returns how the EtcdBackups are doing.
func (s *Snapshot) Backups() []BackupState { return s.backups }
