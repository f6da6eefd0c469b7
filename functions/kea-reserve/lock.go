package main

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/functions/internal/kube"
)

const (
	// LockName is the Lease that lets one delivery at a time write configurations.
	LockName = "kea-reserve"
	// lockDuration is how long a holder that has crashed keeps others out. It is
	// longer than a delivery may take by more than clocks may differ.
	lockDuration = 40 * time.Second
	// lockPatience is how long a delivery waits for its turn before the broker has
	// to deliver again, lockInterval how often it looks.
	lockPatience = 3 * time.Second
	lockInterval = 100 * time.Millisecond
)

// Lock is held by one delivery at a time, over all replicas.
type Lock struct {
	kube      *kube.Client
	namespace string
	now       func() time.Time
}

// NewLock returns the Lock of an installation. namespace is where its Lease is.
func NewLock(client *kube.Client, namespace string, now func() time.Time) *Lock {
	return &Lock{kube: client, namespace: namespace, now: now}
}

// ErrLocked says that others had their turn for too long.
var ErrLocked = errors.New("wait for the turn to change Kea's configuration: others are changing it")

// Acquire waits for the turn, and returns how to end it. Whoever crashes loses its
// turn after lockDuration.
func (l *Lock) Acquire(ctx context.Context) (release func(), err error) {
	holder := rand.Text()
	patience, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	tick := time.NewTicker(lockInterval)
	defer tick.Stop()
	for {
		lease, err := l.tryAcquire(ctx, holder)
		if err != nil {
			return nil, err
		}
		if lease != nil {
			return func() { l.release(ctx, lease) }, nil
		}
		select {
		case <-patience.Done():
			return nil, ErrLocked
		case <-tick.C:
		}
	}
}

// tryAcquire takes the Lease if nobody holds it, by a write that fails if anybody else
// has written it since it was read. It returns nil where somebody has it.
func (l *Lock) tryAcquire(ctx context.Context, holder string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	err := l.kube.Get(ctx, l.namespace, LockName, lease)
	switch {
	case kube.NotFound(err):
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: LockName}}
		l.setHolder(lease, holder)
		err = l.kube.Create(ctx, lease)
	case err != nil:
		return nil, err
	case !isFree(lease.Spec, l.now()):
		return nil, nil
	default:
		l.setHolder(lease, holder)
		err = l.kube.Update(ctx, lease)
	}
	if kube.AlreadyExists(err) || kube.Conflict(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func (l *Lock) setHolder(lease *coordinationv1.Lease, holder string) {
	seconds, now := int32(lockDuration/time.Second), metav1.NewMicroTime(l.now())
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &holder, &seconds
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
}

// isFree tells whether nobody holds a Lease: it has no holder, or its holder has not
// been heard of for longer than it may hold it.
func isFree(s coordinationv1.LeaseSpec, now time.Time) bool {
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return true
	}
	return now.After(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second))
}

// release gives the turn to the next one. If it fails, the turn ends by itself.
func (l *Lock) release(ctx context.Context, lease *coordinationv1.Lease) {
	const timeout = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	lease.Spec.HolderIdentity = nil
	_ = l.kube.Update(ctx, lease)
}
