package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/sim/faults"
)

// startAttempt has a delivery start an attempt of the backup nightly.
func (s *env) startAttempt(holder string) delivery {
	s.Helper()
	d := delivery{function: s.function, holder: holder}
	if err := d.startAttempt(s.Context(), s.backup("nightly")); err != nil {
		s.Fatal(err)
	}
	return d
}

// TestDeadAttempt has a delivery die while it takes a snapshot.
func TestDeadAttempt(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
	s.startAttempt("dead")
	s.expect(s.resync("nightly"), v1alpha1.EtcdBackupRunning, reasonRunning)
	clock := time.Now().Add(s.function.attemptTimeout)
	s.function.now = func() time.Time { return clock }
	b := s.resync("nightly")
	s.expect(b, v1alpha1.EtcdBackupCompleted, "Completed")
	if b.Status.Attempt != nil {
		t.Errorf("no delivery takes a snapshot: got %+v", b.Status.Attempt)
	}
}

// TestOwnAttempt changes the backup during an attempt. The delivery has to see that the recorded
// attempt is its own.
func TestOwnAttempt(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
	own := s.startAttempt("own")
	if err := own.reconcileBackup(t.Context(), s.namespace, "nightly"); err != nil {
		t.Fatal(err)
	}
	s.expect(s.backup("nightly"), v1alpha1.EtcdBackupCompleted, "Completed")
}

// TestAttemptTimesOut takes a snapshot for longer than a delivery may last.
func TestAttemptTimesOut(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/EtcdSnapshot", Latency: "7s", Times: 1}); err != nil {
		t.Fatal(err)
	}
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := (delivery{function: s.function, holder: "slow"}).reconcileBackup(ctx, s.namespace, "nightly"); err != nil {
		t.Error(err)
	}
	b := s.backup("nightly")
	s.expect(b, v1alpha1.EtcdBackupFailed, "BackupFailed")
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); b.Status.Attempt != nil || c == nil || !strings.Contains(c.Message, "not complete after 2s") {
		t.Errorf("got attempt %+v and condition %+v, want the time limit in the message", b.Status.Attempt, c)
	}
	s.expect(s.resync("nightly"), v1alpha1.EtcdBackupCompleted, "Completed")
}

// TestSuspendedDuringAttempt suspends a backup while its snapshot is taken. The snapshot is recorded, and then the backup is suspended.
func TestSuspendedDuringAttempt(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
	first := s.startAttempt("first")
	if err := s.kube.Merge(t.Context(), s.backup("nightly"), map[string]any{"spec": map[string]any{"suspend": true}}); err != nil {
		t.Fatal(err)
	}
	if b := s.resync("nightly"); b.Status.Attempt == nil || !first.holds(b) {
		t.Errorf("the attempt is lost: %+v", b.Status)
	}
	s.function.attemptTimeout = 0
	s.expect(s.resync("nightly"), v1alpha1.EtcdBackupScheduled, "Suspended")
}

// TestLongAttempt takes a snapshot for longer than an attempt lives without a heartbeat.
func TestLongAttempt(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.function.attemptTimeout = 3 * time.Second
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/EtcdSnapshot", Latency: "7s", Times: 1}); err != nil {
		t.Fatal(err)
	}
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
	done := make(chan error)
	go func() {
		done <- delivery{function: s.function, holder: "first"}.reconcileBackup(t.Context(), s.namespace, "nightly")
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			s.expect(s.backup("nightly"), v1alpha1.EtcdBackupCompleted, "Completed")
			return
		case <-time.After(200 * time.Millisecond):
		}
		a := s.backup("nightly").Status.Attempt
		if a == nil {
			continue
		}
		if a = s.resync("nightly").Status.Attempt; a != nil && a.Holder != "first" {
			t.Fatalf("%s takes over an attempt that still runs", a.Holder)
		}
	}
}

const snapshotCall = "MachineService/EtcdSnapshot"

// TestChangeDuringAttempt annotates a backup while a snapshot is taken, as kubectl viti reconcile does. The attempt goes on, and the snapshot is not taken
// twice.
func TestChangeDuringAttempt(t *testing.T) {
	t.Parallel()
	for because, timeout := range map[string]time.Duration{
		"no renewal follows, so the result meets the change": time.Minute,
		"the next renewal meets the change":                  3 * time.Second,
	} {
		t.Run(because, func(t *testing.T) {
			t.Parallel()
			s := setUp(t)
			s.function.attemptTimeout = timeout
			if err := s.plan.Set(faults.Rule{Operation: snapshotCall, Latency: "7s", Times: 1}); err != nil {
				t.Fatal(err)
			}
			s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
			done := make(chan error)
			go func() {
				done <- delivery{function: s.function, holder: "first"}.reconcileBackup(t.Context(), s.namespace, "nightly")
			}()
			isAnnotated := false
			for {
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
					s.expect(s.backup("nightly"), v1alpha1.EtcdBackupCompleted, "Completed")
					if n := s.plan.Calls()[snapshotCall]; n != 1 {
						t.Errorf("the snapshot was taken %d times", n)
					}
					return
				case <-time.After(200 * time.Millisecond):
				}
				b := s.backup("nightly")
				if b.Status.Attempt == nil {
					continue
				}
				if !isAnnotated {
					isAnnotated = true
					if err := s.kube.Merge(t.Context(), b, map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1alpha1.AnnotationReconcile: "now"}}}); err != nil {
						t.Fatal(err)
					}
				}
				if a := s.resync("nightly").Status.Attempt; a != nil && a.Holder != "first" {
					t.Fatalf("%s takes over an attempt that still runs", a.Holder)
				}
			}
		})
	}
}

// TestRetryIsRequested has a user request a reconcile of a backup that has failed. It is tried again once for each request.
func TestRetryIsRequested(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	if err := s.plan.Set(faults.Rule{Operation: "MachineService/ServiceList", Error: "Unavailable"}); err != nil {
		t.Fatal(err)
	}
	s.create(backupTo(v1alpha1.BackupStorage{Type: v1alpha1.BackupLocal}, "", 1))
	s.expect(s.resync("nightly"), v1alpha1.EtcdBackupFailed, "BackupFailed")
	request := func(value string) {
		time.Sleep(time.Second) // metadata.managedFields has whole seconds
		before := s.backup("nightly")
		b := before.DeepCopy()
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, v1alpha1.AnnotationReconcile, value)
		if _, err := s.kube.Patch(t.Context(), before, b); err != nil {
			t.Fatal(err)
		}
	}
	request("first")
	before := s.backup("nightly")
	s.changed("nightly")
	s.expect(s.backup("nightly"), v1alpha1.EtcdBackupFailed, "BackupFailed")
	if s.backup("nightly").ResourceVersion == before.ResourceVersion {
		t.Error("it is not tried again")
	}
	s.requireIdle("nightly", "the event is of its own failure")
	if err := s.plan.Set(); err != nil {
		t.Fatal(err)
	}
	s.requireIdle("nightly", "nothing was requested since")
	request("second")
	s.changed("nightly")
	s.expect(s.backup("nightly"), v1alpha1.EtcdBackupCompleted, "Completed")
}
