package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/dustin/go-humanize"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

type function struct {
	kube *kube.Client
	// volume is the folder for backups of type local, empty if the function has no volume.
	volume string
	now    func() time.Time
	// attemptTimeout is how long after its last renewal an attempt counts as ended, because
	// its delivery has crashed.
	attemptTimeout time.Duration
}

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	if ref.Kind != "EtcdBackup" {
		return nil, events.UnexpectedEvent(ref, functionName)
	}
	d := delivery{function: f, holder: strings.ToLower(rand.Text()[:8]), retryFailed: in.Type() == events.TypeResync}
	return nil, kube.OnConflict(func() error { return d.reconcileBackup(ctx, ref.Namespace, ref.Name) })
}

// delivery is one reconcile of an EtcdBackup.
type delivery struct {
	*function
	// holder identifies the delivery that takes a snapshot, and is a part of the snapshot's name.
	holder string
	// retryFailed is whether the delivery retries an attempt that has failed.
	retryFailed bool
}

// reconcileBackup takes a snapshot if one is due. Otherwise it writes when the next one is
// due, and what would prevent it. Only an event of resync, or a user who requests a reconcile, retries a failed attempt, because
// writing the failure causes an event too, which would retry at once.
func (d delivery) reconcileBackup(ctx context.Context, namespace, name string) error {
	b := &v1alpha1.EtcdBackup{}
	if err := d.kube.Get(ctx, namespace, name, b); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if b.DeletionTimestamp != nil || v1alpha1.IsPaused(b) {
		return nil // what was kept stays
	}
	if d.hasOtherAttempt(b) {
		return nil // the other delivery writes the status at the end of its attempt, which causes the next event
	}
	kc, err := d.readCluster(ctx, b)
	if err != nil {
		return err
	}
	before, begin := b.DeepCopy(), time.Now()
	p, err := planSnapshot(b, kc, d.now())
	if err == nil && !b.Spec.Suspend {
		if hasFailed(b) && !d.retryFailed && !isRetryRequested(b) {
			return nil // it has just failed
		}
		before, err = d.takeIfDue(ctx, b, kc, p)
		if errors.Is(err, errTakenOver) {
			return nil // the other delivery writes the status
		}
		if kube.Conflict(err) {
			return err
		}
	}
	if err != nil && timeIsUp(ctx) {
		err = fmt.Errorf("the snapshot is not complete after %s: check the connections to the control planes and to the store: %s", time.Since(begin).Round(time.Second), oneLine(err))
		// Without a failure in the status, each event would start the same attempt.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
		defer cancel()
	}
	return d.writeStatus(ctx, before, b, p, err)
}

// timeIsUp reports whether the time of a delivery has ended, or ends before it could write a status: the answer of a node that knows the
// deadline can arrive before the context ends.
func timeIsUp(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < time.Second/4
}

// statusTimeout is for writing that the delivery has timed out. The Trigger waits half a minute longer than the delivery.
const statusTimeout = 10 * time.Second

const reasonRunning = "BackupRunning"

// hasOtherAttempt reports whether another delivery takes the snapshot.
func (d delivery) hasOtherAttempt(b *v1alpha1.EtcdBackup) bool {
	a := b.Status.Attempt
	return a != nil && a.Holder != d.holder && d.now().Sub(a.RenewTime.Time) < d.attemptTimeout
}

// hasFailed reports whether the last attempt for the present spec has failed.
func hasFailed(b *v1alpha1.EtcdBackup) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason != reasonRunning && c.ObservedGeneration == b.Generation
}

// isRetryRequested reports whether a user has requested a reconcile since this function has written the status. Resync removes the request.
func isRetryRequested(b *v1alpha1.EtcdBackup) bool {
	return kube.ReconcileRequested(b) && !kube.IsOwnStatusWrite(b, functionName, true)
}

// startAttempt writes that this delivery takes the snapshot. Of two deliveries that try at
// once, one gets a conflict.
func (d delivery) startAttempt(ctx context.Context, b *v1alpha1.EtcdBackup) error {
	before := b.DeepCopy()
	kube.SetReady(&b.Status.Conditions, b.Generation, false, reasonRunning, "a snapshot is being taken")
	b.Status.Phase, b.Status.ObservedGeneration = v1alpha1.EtcdBackupRunning, b.Generation
	b.Status.Attempt = &v1alpha1.BackupAttempt{Holder: d.holder, RenewTime: metav1.NewMicroTime(d.now())}
	_, err := d.kube.PatchStatus(ctx, before, b)
	return err
}

// errTakenOver says that another delivery has taken over the attempt, because this one had not renewed it in time.
var errTakenOver = errors.New("another delivery takes the snapshot")

// renewAttempt renews the attempt in the background until it is another delivery's. end stops it and returns the EtcdBackup as it was written last.
func (d delivery) renewAttempt(ctx context.Context, b *v1alpha1.EtcdBackup) (end func() *v1alpha1.EtcdBackup) {
	taken := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for d.holds(b) {
			select {
			case <-taken:
				return
			case <-time.After(d.attemptTimeout / 3):
			}
			b = d.renewOnce(ctx, b)
		}
	})
	return func() *v1alpha1.EtcdBackup {
		close(taken)
		renewing.Wait()
		return b
	}
}

// renewOnce renews the attempt, and returns the EtcdBackup as the API server has it. It returns the former one if the API server does not answer,
// for example because it restarts: the next renewal is early enough.
func (d delivery) renewOnce(ctx context.Context, b *v1alpha1.EtcdBackup) *v1alpha1.EtcdBackup {
	_ = kube.OnConflict(func() error {
		now := &v1alpha1.EtcdBackup{}
		if err := d.kube.Get(ctx, b.Namespace, b.Name, now); err != nil {
			return err
		}
		if b = now; !d.holds(now) {
			return nil
		}
		renewed := now.DeepCopy()
		renewed.Status.Attempt.RenewTime = metav1.NewMicroTime(d.now())
		if _, err := d.kube.PatchStatus(ctx, now, renewed); err != nil {
			return err
		}
		b = renewed
		return nil
	})
	return b
}

// holds reports whether the attempt of an EtcdBackup is this delivery's.
func (d delivery) holds(b *v1alpha1.EtcdBackup) bool {
	return b.Status.Attempt != nil && b.Status.Attempt.Holder == d.holder
}

// takeIfDue takes the snapshot that is due, after it has started an attempt. If none is due, it
// retries a failed deletion of excess snapshots, and checks whether the next snapshot can be
// taken. It returns the EtcdBackup as written last.
func (d delivery) takeIfDue(ctx context.Context, b *v1alpha1.EtcdBackup, kc *v1alpha1.KubernetesCluster, p plan) (*v1alpha1.EtcdBackup, error) {
	before, over := b.DeepCopy(), p.due.IsZero() && p.next.IsZero()
	hindered := !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady)
	if over && !hindered {
		return before, nil
	}
	kept, err := d.openStore(ctx, b)
	if err == nil && hindered && p.due.IsZero() && b.Status.LastBackupTime != nil {
		err = d.applyRetention(ctx, b, kc, kept)
	}
	if err != nil || over {
		return before, err
	}
	talosconfig, err := d.readTalosconfig(ctx, b, kc)
	if err != nil || p.due.IsZero() {
		return before, err
	}
	if err := d.startAttempt(ctx, b); err != nil {
		return before, err
	}
	return d.take(ctx, b, kept, source{kc, talosconfig}, p.due)
}

// source is the cluster that a snapshot is taken of, and its talosconfig.
type source struct {
	cluster     *v1alpha1.KubernetesCluster
	talosconfig []byte
}

// take takes a snapshot in the attempt that this delivery has started, and records it. It returns the EtcdBackup as written last, and errTakenOver
// if another delivery has taken over the attempt.
func (d delivery) take(ctx context.Context, b *v1alpha1.EtcdBackup, kept store, from source, due time.Time) (*v1alpha1.EtcdBackup, error) {
	end := d.renewAttempt(ctx, b.DeepCopy())
	err := d.takeSnapshot(ctx, b, kept, from, due)
	before := end()
	if err == nil && d.holds(before) {
		err = d.recordSnapshot(ctx, before, b)
	}
	if !d.holds(before) || kube.Conflict(err) {
		d.discardSnapshot(ctx, kept, nameOf(b, from.cluster.UID, due, d.holder))
		return before, errTakenOver
	}
	if err != nil {
		return before, err
	}
	before = b.DeepCopy()
	return before, d.applyRetention(ctx, b, from.cluster, kept)
}

// takeSnapshot copies a snapshot from a control plane into the store, and adds it to the status in memory.
func (d delivery) takeSnapshot(ctx context.Context, b *v1alpha1.EtcdBackup, kept store, from source, due time.Time) error {
	stream, err := openSnapshot(ctx, from.talosconfig)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	name, checked := nameOf(b, from.cluster.UID, due, d.holder), newChecksumReader(stream)
	if err := kept.Put(ctx, name, checked); err != nil {
		return err
	}
	line := checked.sum() + "  " + path.Base(name) + "\n"
	if err := kept.Put(ctx, name+hashEnding, strings.NewReader(line)); err != nil {
		return err
	}
	at, s := metav1.NewTime(due), &b.Status
	s.LastBackupTime, s.BackupSize = &at, humanize.IBytes(uint64(checked.size))
	s.Backups = slices.Insert(s.Backups, 0, v1alpha1.BackupFile{Name: name, Size: checked.size, SHA256: checked.sum()})
	s.Backups = s.Backups[:min(len(s.Backups), mostListed)]
	return nil
}

// recordSnapshot writes the snapshot of this delivery into the status. It returns a conflict if another delivery has taken over the attempt. The write decides
// which of two snapshots that were due at the same time is kept. Only the delivery whose write succeeds deletes files of others.
func (d delivery) recordSnapshot(ctx context.Context, before, b *v1alpha1.EtcdBackup) error {
	if err := d.patchHeld(ctx, before, b, func(before *v1alpha1.EtcdBackup) error {
		b.Status.Attempt = before.Status.Attempt
		_, err := d.kube.PatchStatus(ctx, before, b)
		return err
	}); err != nil {
		return err
	}
	d.kube.RecordEvent(ctx, b, false, "BackupTaken", fmt.Sprintf("kept snapshot %s of %s", b.Status.Backups[0].Name, b.Status.BackupSize))
	return nil
}

// discardSnapshot deletes the files of this delivery's attempt, because the other delivery keeps its own. The next retention deletes what is left of them.
func (d delivery) discardSnapshot(ctx context.Context, kept store, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_ = deleteSnapshot(ctx, kept, name)
}

// mostListed is how many snapshots a status lists.
const mostListed = 20

func (f *function) openStore(ctx context.Context, b *v1alpha1.EtcdBackup) (store, error) {
	at := b.Spec.StorageLocation
	if at.Type == v1alpha1.BackupLocal {
		if f.volume == "" {
			return nil, reconcile.UserError{Reason: "NoVolume", Message: "the function etcd-backup has no volume: mount one and set BACKUP_PATH, or use type s3"}
		}
		return volume{dir: f.volume}, nil
	}
	secret, err := f.readSecret(ctx, b.Namespace, at.SecretRef.Name)
	if kube.NotFound(err) {
		return nil, reconcile.UserError{Reason: "CredentialsNotFound", Message: fmt.Sprintf("Secret %s does not exist: create it with the keys %s and %s. The function checks for it every minute", at.SecretRef.Name, keyID, keySecret)}
	}
	if err != nil {
		return nil, err
	}
	return openBucket(at, secret)
}

// readSecret reads a Secret. It returns a UserError if the function has no rights on the
// Secrets of the namespace.
func (f *function) readSecret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := f.kube.Get(ctx, namespace, name, secret)
	return secret, reconcile.SecretsError(err, functionName)
}

// writeStatus writes the result of a delivery into the status:
//
//	err        phase                              Ready
//	nil        Scheduled, or Completed without    True   Scheduled, Completed or Suspended
//	           a schedule
//	UserError  Pending before the first snapshot, False  its reason
//	           otherwise Failed
//	damaged    Failed                             False  SnapshotDamaged
//	other      Failed                             False  BackupFailed, and resync retries
func (d delivery) writeStatus(ctx context.Context, before, b *v1alpha1.EtcdBackup, p plan, err error) error {
	s := &b.Status
	s.ObservedGeneration, s.NextBackupTime, s.NextCheckTime, s.Attempt = b.Generation, nil, nil, nil
	if !p.next.IsZero() {
		at := metav1.NewTime(p.next)
		s.NextBackupTime = &at
		if err == nil { // what has failed is looked at by every resync
			s.NextCheckTime = &at
		}
	}
	ok, reason, message := err == nil, "Scheduled", "the next snapshot is due "+p.next.UTC().Format(time.RFC3339)
	userError, isUserError := reconcile.AsUserError(err)
	switch {
	case isUserError:
		s.Phase = v1alpha1.EtcdBackupFailed
		if s.LastBackupTime == nil {
			s.Phase = v1alpha1.EtcdBackupPending
		}
		reason, message = userError.Reason, userError.Message
	case errors.Is(err, errDamaged):
		s.Phase, reason, message = v1alpha1.EtcdBackupFailed, "SnapshotDamaged", errDamaged.Error()+"; it was deleted, and another snapshot is taken"
	case err != nil:
		s.Phase, reason, message = v1alpha1.EtcdBackupFailed, "BackupFailed", oneLine(err)+"; it is tried again"
	case b.Spec.Suspend:
		s.Phase, reason, message = v1alpha1.EtcdBackupScheduled, "Suspended", "no snapshot is taken while spec.suspend is true"
	case b.Spec.Schedule == "":
		s.Phase, reason, message = v1alpha1.EtcdBackupCompleted, "Completed", "the snapshot is stored; no other is due, because spec.schedule is not set"
	default:
		s.Phase = v1alpha1.EtcdBackupScheduled
	}
	outcome := reconcile.SetReady(&s.Conditions, b.Generation, ok, reason, message)
	outcome.Warning, outcome.Changed = !ok, !ok && outcome.Changed // a snapshot has an Event of its own
	return d.patchResult(ctx, before, b, outcome)
}

// patchResult writes the status of b. resync sends an event for what is not Ready.
func (d delivery) patchResult(ctx context.Context, before, b *v1alpha1.EtcdBackup, outcome reconcile.Outcome) error {
	return d.patchHeld(ctx, before, b, func(before *v1alpha1.EtcdBackup) error {
		_, err := reconcile.PatchStatus(ctx, d.kube, before, b, string(b.Status.Phase), outcome)
		return err
	})
}

// patchHeld calls patch to write the status of b over that of before. If the EtcdBackup was changed during an attempt of this delivery, as by kubectl annotate,
// it calls patch with the present EtcdBackup. Otherwise a conflict would have the snapshot taken again. It returns the conflict if another delivery holds the attempt.
func (d delivery) patchHeld(ctx context.Context, before, b *v1alpha1.EtcdBackup, patch func(before *v1alpha1.EtcdBackup) error) error {
	return kube.OnConflict(func() error {
		err := patch(before)
		if !kube.Conflict(err) || !d.holds(before) {
			return err
		}
		now := &v1alpha1.EtcdBackup{}
		switch readErr := d.kube.Get(ctx, b.Namespace, b.Name, now); {
		case kube.NotFound(readErr):
			return nil
		case readErr != nil:
			return readErr
		case d.holds(now):
			before = now
		}
		return err
	})
}

// oneLine shortens an error to a line that fits a condition.
func oneLine(err error) string {
	const most = 512
	text := strings.Join(strings.Fields(err.Error()), " ")
	return text[:min(len(text), most)]
}
