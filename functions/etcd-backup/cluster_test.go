package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// recreateCluster deletes the cluster shop, and creates another one of the same name. It has the former UIDs.
func (s *env) recreateCluster(former string) *v1alpha1.KubernetesCluster {
	s.Helper()
	kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "shop"}}
	if err := s.kube.Get(s.Context(), s.namespace, "shop", kc); err != nil {
		s.Fatal(err)
	}
	if err := s.kube.Delete(s.Context(), kc); err != nil {
		s.Fatal(err)
	}
	if err := s.kube.Delete(s.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "shop-talosconfig"}}); err != nil {
		s.Fatal(err)
	}
	s.publish()
	if err := s.kube.Get(s.Context(), s.namespace, "shop", kc); err != nil {
		s.Fatal(err)
	}
	if former != "" {
		if err := s.kube.Merge(s.Context(), kc, map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationFormerUIDs: former}}}); err != nil {
			s.Fatal(err)
		}
	}
	return kc
}

// requireKept fails the test unless the volume has the snapshots of a backup, and returns them.
func (s *env) requireKept(b *v1alpha1.EtcdBackup, want int) []v1alpha1.BackupFile {
	s.Helper()
	if len(b.Status.Backups) != want || int(b.Status.BackupCount) != want {
		s.Fatalf("the status has %+v, want %d snapshots", b.Status, want)
	}
	for _, kept := range b.Status.Backups {
		if _, err := os.Stat(filepath.Join(s.function.volume, kept.Name)); err != nil || kept.SHA256 == "" {
			s.Errorf("%+v is lost: %v", kept, err)
		}
	}
	return b.Status.Backups
}

// TestRetentionOfFormerCluster creates a cluster again under its name. Retention keeps the snapshots of the former one, however many of the
// present one follow, also for an EtcdBackup that was created again.
func TestRetentionOfFormerCluster(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "0 2 * * *", 1))
	clock := time.Now()
	s.function.now = func() time.Time { return clock }
	take := func(want int) []v1alpha1.BackupFile {
		t.Helper()
		clock = clock.Add(24 * time.Hour)
		b := s.resync("nightly")
		s.expect(b, v1alpha1.EtcdBackupScheduled, "Scheduled")
		return s.requireKept(b, want)
	}
	former := take(1)[0]
	s.recreateCluster("")
	first := take(2)
	if first[1] != former {
		t.Errorf("the status has %+v, want the snapshot of the former cluster too", first)
	}
	if second := take(2); second[0] == first[0] || second[1] != former {
		t.Errorf("the status has %+v, want the newest snapshot of the present cluster, and that of the former one", second)
	}
	if err := s.kube.Delete(t.Context(), s.backup("nightly")); err != nil {
		t.Fatal(err)
	}
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "0 2 * * *", 1))
	clock = clock.Add(24 * time.Hour)
	s.expect(s.resync("nightly"), v1alpha1.EtcdBackupScheduled, "Scheduled")
	if _, err := os.Stat(filepath.Join(s.function.volume, former.Name)); err != nil {
		t.Errorf("the snapshot of the former cluster is lost: %v", err)
	}
}

// TestOnceOfEachCluster has no schedule. A cluster that was created again gets a snapshot, unless it is the same one by its former UID.
func TestOnceOfEachCluster(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
	b := s.resync("nightly")
	s.expect(b, v1alpha1.EtcdBackupCompleted, "Completed")
	former := s.requireKept(b, 1)[0]
	kc := s.recreateCluster("")
	b = s.resync("nightly")
	s.expect(b, v1alpha1.EtcdBackupCompleted, "Completed")
	for _, kept := range s.requireKept(b, 2) {
		if of, ok := parseSnapshot(b, file{name: kept.Name}); !ok || of.isOf(kc) == (kept == former) {
			t.Errorf("%s has the wrong cluster", kept.Name)
		}
	}
	s.requireIdle("nightly", "the present cluster has its snapshot")
	s.recreateCluster(string(kc.UID))
	if b = s.resync("nightly"); len(b.Status.Backups) != 2 {
		t.Errorf("a cluster that was created again with its former UID has its snapshot: got %+v", b.Status.Backups)
	}
}

func TestSnapshotIsOf(t *testing.T) {
	t.Parallel()
	made := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	b := backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1)
	kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{
		UID: "11111111-0000-4000-8000-000000000000", CreationTimestamp: metav1.NewTime(made),
		Annotations: map[string]string{v1alpha1.AnnotationFormerUIDs: "22222222-0000-4000-8000-000000000000"},
	}}
	taken := func(uid types.UID) string { return nameOf(b, uid, made.Add(time.Hour), "a") }
	folder := folderOf(b) + "/"
	for name, tc := range map[string]struct {
		reason, file string
		want         bool
	}{
		"Own":         {"it has the UID of the cluster", taken(kc.UID), true},
		"FormerUID":   {"the cluster had the UID before it moved", taken("22222222-0000-4000-8000-000000000000"), true},
		"Other":       {"it is of a cluster that was deleted", taken("33333333-0000-4000-8000-000000000000"), false},
		"Later":       {"an earlier version took it after the cluster was created", folder + "shop-20260102T040000Z-a.db", true},
		"Earlier":     {"an earlier version took it before the cluster was created", folder + "shop-20260102T020000Z-a.db", false},
		"EarlierName": {"names from before version 0.16 have no attempt", folder + "shop-20260102T020000Z.db", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ok := parseSnapshot(b, file{name: tc.file})
			if !ok || s.isOf(kc) != tc.want {
				t.Errorf("%s: %s is read as %+v (%t), want %t", tc.reason, tc.file, s, ok, tc.want)
			}
		})
	}
}
