package inventory

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// BackupState is how an EtcdBackup is doing, for metrics.
type BackupState struct {
	Namespace, Name string
	Ready           bool
	// Recurs reports that the EtcdBackup has a schedule and is not suspended, so that newer snapshots are expected.
	Recurs bool
	// LastSuccess is when the newest snapshot was due. It is zero if there is none.
	LastSuccess time.Time
}

// backupStates returns the states of EtcdBackups that are not being deleted, by namespace and name.
func backupStates(objects []*Object) []BackupState {
	all := make([]BackupState, 0, len(objects))
	for _, o := range objects {
		if !o.Deleting {
			f := o.Facts.(*Backup)
			all = append(all, BackupState{
				Namespace: o.Namespace, Name: o.Name, Ready: o.Readiness.Ready, Recurs: f.Schedule != "" && !f.Suspended, LastSuccess: f.LastSuccess,
			})
		}
	}
	slices.SortFunc(all, func(a, b BackupState) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Backups returns how the EtcdBackups are doing.
func (s *Snapshot) Backups() []BackupState { return s.backups }

type backupJSON struct {
	head
	Cluster   string `json:"cluster"`
	Schedule  string `json:"schedule,omitempty"`
	Suspended bool   `json:"suspended,omitempty"`
	Storage   string `json:"storage,omitempty"`
	Retention int32  `json:"retention"`
	Snapshots int32  `json:"snapshots"`
	Size      string `json:"size,omitempty"`
	// LastSuccess is when the newest snapshot was due, and Next when the next one is due.
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	Next        time.Time `json:"next,omitzero"`
	tail
}

func backupItem(o *Object) *Item {
	f := o.Facts.(*Backup)
	i := itemOf(TopicBackups, o, phaseStatus(TopicBackups, f.Phase), f.Phase, f)
	i.JSON = encode(backupJSON{
		head: i.head(), tail: i.tail(), Cluster: f.Cluster, Schedule: f.Schedule, Suspended: f.Suspended, Storage: f.Storage,
		Retention: f.Retention, Snapshots: f.Snapshots, Size: f.Size, LastSuccess: f.LastSuccess, Next: f.Next,
	})
	return i
}

func (f *Backup) attribute(name string) string {
	switch name {
	case "cluster":
		return f.Cluster
	case "schedule":
		return f.Schedule
	case "snapshots":
		return strconv.Itoa(int(f.Snapshots))
	case "lastSuccess":
		if !f.LastSuccess.IsZero() {
			return f.LastSuccess.Format(time.RFC3339)
		}
	}
	return ""
}
