package kea

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
	// lockDuration is for how long a holder that has crashed blocks others. It exceeds the
	// longest delivery by more than clocks may differ.
	lockDuration = 40 * time.Second
	// lockTimeout is how long a delivery waits for the Lock before the Broker has to
	// redeliver its event. lockInterval is how often it tries.
	lockTimeout  = 3 * time.Second
	lockInterval = 100 * time.Millisecond
)

// Lock is held by one delivery at a time, across all replicas.
type Lock struct {
	kube      *kube.Client
	namespace string
	now       func() time.Time
}

// NewLock returns the Lock of an installation. namespace is where its Lease is.
func NewLock(client *kube.Client, namespace string, now func() time.Time) *Lock {
	return &Lock{kube: client, namespace: namespace, now: now}
}

// ErrLocked says that other deliveries held the Lock for longer than lockTimeout.
var ErrLocked = errors.New("waiting for the Lease kea-reserve: other deliveries are changing the configuration of Kea")

// Acquire waits for the Lock and returns the function that releases it. A holder that crashes
// loses it after lockDuration.
func (l *Lock) Acquire(ctx context.Context) (release func(), err error) {
	holder := rand.Text()
	waiting, cancel := context.WithTimeout(ctx, lockTimeout)
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
		case <-waiting.Done():
			return nil, ErrLocked
		case <-tick.C:
		}
	}
}

// tryAcquire takes the Lease unless another delivery holds it, by a write that fails if
// another delivery has written it since it was read. It returns nil if another delivery holds
// it.
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

// isFree reports whether a Lease has no holder, or its holder has not renewed it in time.
func isFree(s coordinationv1.LeaseSpec, now time.Time) bool {
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return true
	}
	return now.After(s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second))
}

// release lets the next delivery acquire the Lock. If it fails, the Lease expires.
func (l *Lock) release(ctx context.Context, lease *coordinationv1.Lease) {
	const timeout = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	lease.Spec.HolderIdentity = nil
	_ = l.kube.Update(ctx, lease)
}
