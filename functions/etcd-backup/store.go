package main

import (
	"cmp"
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// store keeps the files of snapshots. Every method may be repeated.
type store interface {
	// Put writes all of a file or nothing, also where content ends in an error.
	// A file of that name is replaced. Unfinished files of crashed deliveries in the same
	// folder are removed after abandonedAfter.
	Put(ctx context.Context, name string, content io.Reader) error
	// List returns the files in a folder, by their whole names.
	List(ctx context.Context, folder string) ([]file, error)
	// Delete removes a file. It succeeds if the file does not exist.
	Delete(ctx context.Context, name string) error
}

// abandonedAfter is the age of an unfinished file whose delivery has certainly ended, because
// deliveries take minutes.
const abandonedAfter = time.Hour

// file is a file in a store.
type file struct {
	name string
	size int64
}

// Endings of the names of a snapshot, and of the file with its hash, which sha256sum
// -c reads.
const (
	snapshotEnding = ".db"
	hashEnding     = ".sha256"
)

// dueLayout is how the name of a snapshot has the time at which it was due.
const dueLayout = "20060102T150405Z"

// folderOf returns the folder of an EtcdBackup.
func folderOf(b *v1alpha1.EtcdBackup) string {
	return path.Join(b.Spec.StorageLocation.Path, b.Namespace, b.Name)
}

// nameOf returns the name of the snapshot of a cluster that was due at a time, as an attempt takes it. Names sort by time. Each attempt has
// names of its own: of two that run at once, neither replaces a file of the other, so a snapshot and the file with its hash always belong together.
// The UID of the cluster distinguishes it from one that was deleted before.
func nameOf(b *v1alpha1.EtcdBackup, cluster types.UID, due time.Time, attempt string) string {
	return path.Join(folderOf(b), b.Spec.ClusterName+"-"+due.UTC().Format(dueLayout)+"-"+clusterID(string(cluster))+"-"+attempt+snapshotEnding)
}

// snapshot is the file of a snapshot, with the parts of its name: the time at which it was due, and the cluster.
type snapshot struct {
	file
	due string
	// cluster is what clusterID returns. It is empty for a snapshot of an earlier version.
	cluster string
}

// parseSnapshot returns the snapshot in a file of a backup. ok is false for other files, and for snapshots of a cluster of another name, which may
// begin with the name of this one. Names from before version 0.16 have no attempt, and of earlier versions no UID of a cluster.
func parseSnapshot(b *v1alpha1.EtcdBackup, f file) (s snapshot, ok bool) {
	name, isSnapshot := strings.CutSuffix(f.name, snapshotEnding)
	name, isOurs := strings.CutPrefix(name, path.Join(folderOf(b), b.Spec.ClusterName+"-"))
	parts := strings.Split(name, "-")
	_, err := time.Parse(dueLayout, parts[0])
	s = snapshot{file: f, due: parts[0]}
	if len(parts) == 3 {
		s.cluster = parts[1]
	}
	return s, isSnapshot && isOurs && err == nil && len(parts) <= 3
}

// snapshotsOf returns the snapshots of a backup among the files of a folder, sorted by the time they were due, newest first. Of several attempts with the
// same due time, the wanted one comes first.
func snapshotsOf(b *v1alpha1.EtcdBackup, files []file, isWanted func(name string) bool) []snapshot {
	var found []snapshot
	for _, f := range files {
		if s, ok := parseSnapshot(b, f); ok {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b snapshot) int {
		if order := cmp.Compare(b.due, a.due); order != 0 {
			return order
		}
		switch {
		case isWanted(a.name) == isWanted(b.name):
			return cmp.Compare(b.name, a.name)
		case isWanted(a.name):
			return -1
		default:
			return 1
		}
	})
	return found
}
