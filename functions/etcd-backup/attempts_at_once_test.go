package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// interruptedStore calls do before the first file with the hash of a snapshot is written.
type interruptedStore struct {
	store
	do func()
}

func (i *interruptedStore) Put(ctx context.Context, name string, content io.Reader) error {
	if do := i.do; do != nil && strings.HasSuffix(name, hashEnding) {
		i.do = nil
		do()
	}
	return i.store.Put(ctx, name, content)
}

// TestAttemptsAtOnce has a second delivery take the same snapshot after the first one has written it, and before it writes the file with its hash. The
// files of each snapshot belong together, so that sha256sum -c accepts it.
func TestAttemptsAtOnce(t *testing.T) {
	t.Parallel()
	sim, at, secret := objectStore(t)
	for name, location := range map[string]v1alpha1.BackupStorage{"Volume": {Type: v1alpha1.BackupLocal}, "S3": at} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUp(t)
			s.create(secret.DeepCopy())
			s.create(backupTo(location, "", 3))
			first := s.startAttempt("first")
			b := s.backup("nightly")
			kept, err := first.openStore(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			kc, err := first.readCluster(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			talosconfig, err := first.readTalosconfig(t.Context(), b, kc)
			if err != nil {
				t.Fatal(err)
			}
			interrupted := &interruptedStore{store: kept, do: func() {
				changed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "changed"}}
				if _, err := s.workload().CoreV1().ConfigMaps("default").Create(t.Context(), changed, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				later := *s.function
				later.now = func() time.Time { return time.Now().Add(attemptTimeout) }
				if err := (delivery{function: &later, holder: "second"}).reconcileBackup(t.Context(), s.namespace, "nightly"); err != nil {
					t.Fatal(err)
				}
				s.expect(s.backup("nightly"), v1alpha1.EtcdBackupCompleted, "Completed")
			}}
			due := b.CreationTimestamp.UTC()
			if err := first.takeSnapshot(t.Context(), b, interrupted, source{kc, talosconfig}, due); err != nil {
				t.Fatal(err)
			}
			files, err := kept.List(t.Context(), folderOf(b))
			if err != nil {
				t.Fatal(err)
			}
			read := func(name string) []byte {
				if content, ok := sim.Object(name); ok {
					return content
				}
				content, _ := os.ReadFile(filepath.Join(s.function.volume, name))
				return content
			}
			checked := 0
			for _, f := range files {
				of, isHash := strings.CutSuffix(f.name, hashEnding)
				if !isHash {
					continue
				}
				content := read(of)
				if len(content) == 0 {
					continue // the other attempt has deleted the snapshot
				}
				checked++
				sum := sha256.Sum256(content)
				if want := hex.EncodeToString(sum[:]) + "  " + path.Base(of) + "\n"; string(read(f.name)) != want {
					t.Errorf("%s has %q, want %q", f.name, read(f.name), want)
				}
			}
			recorded := s.backup("nightly").Status.Backups
			if checked == 0 || len(recorded) != 1 {
				t.Fatalf("the store has %v and the status %+v, want a snapshot with its hash", files, recorded)
			}
			if sum := sha256.Sum256(read(recorded[0].Name)); hex.EncodeToString(sum[:]) != recorded[0].SHA256 {
				t.Errorf("the status has the hash %s of another file than %s", recorded[0].SHA256, recorded[0].Name)
			}
		})
	}
}

// TestTakenOver takes a snapshot for so long without a renewal that another delivery takes it too, and finishes first. The first one leaves the
// status and the files of the other one as they are, and deletes its own.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	if err := s.plan.Set(faults.Rule{Operation: snapshotCall, Latency: "7s", Times: 1}); err != nil {
		t.Fatal(err)
	}
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 3))
	done := make(chan error)
	go func() {
		done <- delivery{function: s.function, holder: "first"}.reconcileBackup(t.Context(), s.namespace, "nightly")
	}()
	feed.Until(t, "the first delivery takes a snapshot", func() (bool, string) {
		calls := s.plan.Calls()[snapshotCall]
		return s.backup("nightly").Status.Attempt != nil && calls > 0, fmt.Sprintf("%d calls", calls)
	})
	later := *s.function
	later.now = func() time.Time { return time.Now().Add(attemptTimeout) }
	if err := (delivery{function: &later, holder: "second"}).reconcileBackup(t.Context(), s.namespace, "nightly"); err != nil {
		t.Fatal(err)
	}
	wanted := s.backup("nightly")
	s.expect(wanted, v1alpha1.EtcdBackupCompleted, "Completed")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if b := s.backup("nightly"); b.ResourceVersion != wanted.ResourceVersion {
		t.Errorf("the first delivery wrote %+v over %+v", b.Status, wanted.Status)
	}
	files, err := volume{dir: s.function.volume}.List(t.Context(), folderOf(wanted))
	var names []string
	for _, f := range files {
		names = append(names, f.name)
	}
	kept := wanted.Status.Backups[0].Name
	if err != nil || !slices.Equal(names, []string{kept, kept + hashEnding}) {
		t.Errorf("the volume has %v (%v), want the snapshot of the second delivery", names, err)
	}
}

// TestRetentionOfAttempts has files of attempts that crashed beside the snapshots of the status.
func TestRetentionOfAttempts(t *testing.T) {
	t.Parallel()
	b := backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "@daily", 2)
	b.Namespace = "shop"
	at := func(name string) string { return path.Join(folderOf(b), name) }
	kept := volume{dir: t.TempDir()}
	for _, name := range []string{
		"shop-20260101T000000Z.db",
		"shop-20260102T000000Z.db", "shop-20260102T000000Z-crashed.db",
		"shop-20260103T000000Z-a.db", "shop-20260103T000000Z-b.db", "shop-20260103T000000Z-c.db", "shop-20260103T000000Z-c.db.sha256",
	} {
		if err := kept.Put(t.Context(), at(name), strings.NewReader(name)); err != nil {
			t.Fatal(err)
		}
	}
	b.Status.Backups = []v1alpha1.BackupFile{{Name: at("shop-20260103T000000Z-b.db"), SHA256: "b"}, {Name: at("shop-20260102T000000Z.db"), SHA256: "2"}}
	if err := (&function{}).applyRetention(t.Context(), b, &v1alpha1.KubernetesCluster{}, kept); err != nil {
		t.Fatal(err)
	}
	files, err := kept.List(t.Context(), folderOf(b))
	if err != nil || len(files) != 2 {
		t.Fatalf("got %v and %v, want one file for each snapshot of the status", files, err)
	}
	for i, want := range []string{"shop-20260103T000000Z-b.db", "shop-20260102T000000Z.db"} {
		if got := b.Status.Backups[i]; got.Name != at(want) || got.SHA256 == "" || !slices.ContainsFunc(files, func(f file) bool { return f.name == got.Name }) {
			t.Errorf("the status has %+v, want %s with its hash", got, want)
		}
	}
}
