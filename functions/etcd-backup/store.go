package main

import (
	"context"
	"io"
	"path"
	"slices"
	"strings"
	"time"

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

// nameOf returns the name of the snapshot that was due at a time. Names sort by time.
func nameOf(b *v1alpha1.EtcdBackup, due time.Time) string {
	return path.Join(folderOf(b), b.Spec.ClusterName+"-"+due.UTC().Format(dueLayout)+snapshotEnding)
}

// snapshotsOf returns the snapshots among the files of a folder, the newest first. Snapshots of another cluster, whose name may
// begin with the name of this one, are none of them.
func snapshotsOf(b *v1alpha1.EtcdBackup, files []file) []file {
	prefix := path.Join(folderOf(b), b.Spec.ClusterName+"-")
	found := slices.DeleteFunc(slices.Clone(files), func(f file) bool {
		due, isOurs := strings.CutPrefix(strings.TrimSuffix(f.name, snapshotEnding), prefix)
		_, err := time.Parse(dueLayout, due)
		return !isOurs || err != nil || !strings.HasSuffix(f.name, snapshotEnding)
	})
	slices.SortFunc(found, func(a, b file) int { return strings.Compare(b.name, a.name) })
	return found
}
