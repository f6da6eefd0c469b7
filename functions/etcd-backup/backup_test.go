package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestNodeWithoutEtcd requests a snapshot from a node whose etcd waits for a bootstrap. The error is
// immediate and names the state of etcd.
func TestNodeWithoutEtcd(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.eventually("etcd's data is wiped", func(ctx context.Context, c *client.Client) error {
		return c.ResetGeneric(ctx, &machine.ResetRequest{Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}}})
	})
	s.awaitEtcdState("Preparing")
	if err := s.failSnapshot(); !strings.Contains(err.Error(), "etcd is Preparing") {
		t.Errorf("want an error that names the state of etcd, got %v", err)
	}
}

// TestNodeHangs requests a snapshot from a node that accepts the connection and does not answer. There is time left for other control planes.
func TestNodeHangs(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/ServiceList", Latency: "10m"}); err != nil {
		t.Fatal(err)
	}
	if err := s.failSnapshot(); !strings.Contains(err.Error(), "list services") {
		t.Errorf("want an error about the node, got %v", err)
	}
}

// failSnapshot requests a snapshot, and returns the error. It fails the test if there is none within the time of a delivery.
func (s *env) failSnapshot() error {
	s.Helper()
	document, err := s.talosconfig.Bytes()
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	stream, err := openSnapshot(ctx, document)
	if err == nil {
		_ = stream.Close()
	}
	if err == nil || ctx.Err() != nil {
		s.Fatalf("want an error before the delivery ends, got %v", err)
	}
	return err
}

func backupTo(at v1alpha1.BackupStorage, schedule string, retention int32) *v1alpha1.EtcdBackup {
	return &v1alpha1.EtcdBackup{
		ObjectMeta: metav1.ObjectMeta{Name: "nightly"},
		Spec:       v1alpha1.EtcdBackupSpec{ClusterName: "shop", Schedule: schedule, Retention: retention, StorageLocation: at},
	}
}

// TestBackups takes snapshots into an object store on a schedule.
func TestBackups(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	sim, at, secret := objectStore(t)
	s.create(backupTo(at, "0 2 * * *", 2))
	clock := time.Now()
	s.function.now = func() time.Time { return clock }
	b := s.resync("nightly")
	s.expect(b, v1alpha1.EtcdBackupPending, "CredentialsNotFound") // long before a snapshot is due
	if b.Status.NextBackupTime == nil || b.Status.NextCheckTime != nil {
		t.Errorf("the next backup is due at %v, but resync checks a blocked one each time: %v", b.Status.NextBackupTime, b.Status.NextCheckTime)
	}
	s.create(secret)
	s.expect(s.resync("nightly"), v1alpha1.EtcdBackupScheduled, "Scheduled")
	clock = clock.Add(24 * time.Hour)
	for range 3 {
		b := s.resync("nightly")
		s.expect(b, v1alpha1.EtcdBackupScheduled, "Scheduled")
		newest := b.Status.Backups[0]
		content, ok := sim.Object(newest.Name)
		if sum := sha256.Sum256(content); !ok || hex.EncodeToString(sum[:]) != newest.SHA256 || int64(len(content)) != newest.Size {
			t.Errorf("%+v differs from the stored file: %d bytes, %x", newest, len(content), sum)
		}
		if again := s.resync("nightly"); again.ResourceVersion != b.ResourceVersion {
			t.Error("no backup was due, but the status was written")
		}
		clock = clock.Add(24 * time.Hour)
	}
	keys := sim.Keys()
	if len(keys) != 4 || !strings.Contains(keys[0], "T020000Z-") || !strings.HasSuffix(keys[0], ".db") || keys[1] != keys[0]+".sha256" {
		t.Errorf("want two snapshots with their hashes: got %v", keys)
	}
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/EtcdSnapshot", Error: "unavailable"}); err != nil {
		t.Fatal(err)
	}
	b = s.resync("nightly")
	s.expect(b, v1alpha1.EtcdBackupFailed, "BackupFailed")
	if b.Status.NextCheckTime != nil {
		t.Errorf("resync retries a failed backup, and no check is due at %v", b.Status.NextCheckTime)
	}
	s.requireIdle("nightly", "its own status write causes no retry")
	if err := s.plan.Set(); err != nil {
		t.Fatal(err)
	}
	s.expect(s.resync("nightly"), v1alpha1.EtcdBackupScheduled, "Scheduled")
}

// TestRetention has the store reject the deletion of old snapshots for a while.
func TestRetention(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	sim, at, secret := objectStore(t)
	s.create(secret)
	s.create(backupTo(at, "0 2 * * *", 1))
	clock := time.Now()
	s.function.now = func() time.Time { return clock }
	clock = clock.Add(24 * time.Hour)
	s.expect(s.resync("nightly"), v1alpha1.EtcdBackupScheduled, "Scheduled")
	if err := sim.Plan.Set(faults.Rule{Operation: "DeleteObject", Error: "AccessDenied"}); err != nil {
		t.Fatal(err)
	}
	clock = clock.Add(24 * time.Hour)
	for range 2 { // the snapshot is taken once and kept
		b := s.resync("nightly")
		s.expect(b, v1alpha1.EtcdBackupFailed, "StorageRefused")
		s.requireIdle("nightly", "an error remains when no snapshot is due")
		if len(b.Status.Backups) != 2 || b.Status.Backups[0].SHA256 == "" || len(sim.Keys()) != 4 {
			t.Errorf("got %+v, and %v in the store", b.Status.Backups, sim.Keys())
		}
	}
	if err := sim.Plan.Set(); err != nil {
		t.Fatal(err)
	}
	b := s.resync("nightly")
	s.expect(b, v1alpha1.EtcdBackupScheduled, "Scheduled")
	if len(b.Status.Backups) != 1 || b.Status.Backups[0].SHA256 == "" || len(sim.Keys()) != 2 {
		t.Errorf("got %+v, and %v in the store, want the newest only", b.Status.Backups, sim.Keys())
	}
}

// TestRetentionOfOtherCluster takes a snapshot into a folder that has newer ones of a cluster whose name begins with the same word.
func TestRetentionOfOtherCluster(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	b := backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1)
	s.create(b)
	folder := filepath.Join(s.function.volume, folderOf(b))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(folder, b.Spec.ClusterName+"-eu-20991231T000000Z"+snapshotEnding)
	if err := os.WriteFile(other, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	b = s.resync("nightly")
	s.expect(b, v1alpha1.EtcdBackupCompleted, "Completed")
	if b.Status.BackupCount != 1 || len(b.Status.Backups) != 1 {
		t.Errorf("the status has %+v, want only the snapshot that was taken", b.Status.Backups)
	}
	for _, file := range []string{other, filepath.Join(s.function.volume, b.Status.Backups[0].Name)} {
		if _, err := os.Stat(file); err != nil {
			t.Errorf("a snapshot was deleted: %v", err)
		}
	}
}

// TestRestore follows the steps of the README.
func TestRestore(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	precious := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "precious"}, Data: map[string]string{"a": "b"}}
	if _, err := s.workload().CoreV1().ConfigMaps("default").Create(t.Context(), precious, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
	b := s.resync("nightly")
	s.expect(b, v1alpha1.EtcdBackupCompleted, "Completed")
	snapshot, err := os.ReadFile(s.function.volume + "/" + b.Status.Backups[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.workload().CoreV1().ConfigMaps("default").Delete(t.Context(), "precious", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("etcd's data is wiped", func(ctx context.Context, c *client.Client) error {
		return c.ResetGeneric(ctx, &machine.ResetRequest{Reboot: true, SystemPartitionsToWipe: []*machine.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}}})
	})
	damaged := bytes.Clone(snapshot)
	damaged[len(damaged)/2]++
	s.eventually("a damaged snapshot is rejected", func(ctx context.Context, c *client.Client) error {
		if _, err := c.EtcdRecover(ctx, bytes.NewReader(damaged)); err != nil {
			return err
		}
		if err := c.Bootstrap(ctx, &machine.BootstrapRequest{RecoverEtcd: true}); err == nil || !strings.Contains(err.Error(), "sha256") {
			return errors.Join(errors.New("the error has to name the wrong hash"), err)
		}
		return nil
	})
	s.eventually("etcd is recovered", func(ctx context.Context, c *client.Client) error {
		if _, err := c.EtcdRecover(ctx, bytes.NewReader(snapshot)); err != nil {
			return err
		}
		return c.Bootstrap(ctx, &machine.BootstrapRequest{RecoverEtcd: true})
	})
	feed.Until(t, "a deleted object exists again", func() (bool, string) {
		cm, err := s.workload().CoreV1().ConfigMaps("default").Get(t.Context(), "precious", metav1.GetOptions{})
		return err == nil && cm.Data["a"] == "b", fmt.Sprint(err, apierrors.IsNotFound(err))
	})
}
