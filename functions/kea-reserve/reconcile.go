package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/orphans"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

type function struct {
	kube   *kube.Client
	sender sender
	// clients reach the Kea servers, the primary one first. There are none if the
	// installation has no Kea.
	clients []*kea.Client
	// reporter publishes whether the servers answer.
	reporter *backendhealth.Reporter
	lock     *kea.Lock
	// classes are the client classes of a subnet whose network names none.
	classes []string
	// allowed are the subnets of Kea that may be used although the stack has not created them.
	allowed subnetList
	strict  bool
	now     func() time.Time
	// namespace is the stack's, and shared is whether another installation of the stack uses
	// the same Kea.
	namespace string
	shared    bool
}

// sender sends events to the Broker.
type sender interface {
	Send(ctx context.Context, e event.Event) error
}

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	full := in.Type() == events.TypeResync
	if full && orphans.IsRef(ref) {
		return nil, cmp.Or(f.checkHealth(ctx), f.checkOrphans(ctx))
	}
	switch ref.Kind {
	case "NetworkConfiguration":
		options := reconcileOptions{full: full}
		if nc := (v1alpha1.NetworkConfiguration{}); events.ObjectFrom(in, &nc) && f.isServedElsewhere(ctx, &nc, &options) {
			return nil, nil
		}
		return nil, kube.OnConflict(func() error { return f.reconcileConfiguration(ctx, ref.Namespace, ref.Name, options) })
	case "NetworkNamespace":
		if nn := (v1alpha2.NetworkNamespace{}); network.IsUsageEvent(in) || events.ObjectFrom(in, &nn) && !isNetworkServed(&nn) {
			return nil, nil
		}
		return nil, f.reconcileNetwork(ctx, ref.Namespace, ref.Name, full)
	default:
		return nil, events.UnexpectedEvent(ref, name)
	}
}

// reconcileOptions says how one delivery reconciles a NetworkConfiguration.
type reconcileOptions struct {
	// full asks Kea also if the status says that every reservation exists.
	full bool
	// found caches the NetworkNamespace that a NetworkConfiguration with name is in.
	found *v1alpha2.NetworkNamespace
	name  string
}

// findNetwork returns the NetworkNamespace of a NetworkConfiguration, with one request at
// most in a delivery. Its errors are those of network.Find.
func (o *reconcileOptions) findNetwork(ctx context.Context, c *kube.Client, nc *v1alpha1.NetworkConfiguration) (*v1alpha2.NetworkNamespace, error) {
	name := network.NameFor(nc)
	if o.found != nil && o.name == name {
		return o.found, nil
	}
	nn, err := network.Find(ctx, c, nc.Namespace, name)
	if err == nil {
		o.found, o.name = nn, name
	}
	return nn, err
}

// isServedElsewhere reports whether another function allocates the addresses of a
// NetworkConfiguration and Kea has no reservation for it.
func (f *function) isServedElsewhere(ctx context.Context, nc *v1alpha1.NetworkConfiguration, options *reconcileOptions) bool {
	if slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea) {
		return false
	}
	if nc.DeletionTimestamp != nil || hasStaticAddresses(nc) {
		return true
	}
	nn, err := options.findNetwork(ctx, f.kube, nc)
	if err != nil {
		return false
	}
	served, _ := isServed(nc, nn, f.strict)
	return !served
}

// reconcileConfiguration reserves the addresses of one NetworkConfiguration in Kea, or
// releases them if it is being deleted. A second call changes nothing.
func (f *function) reconcileConfiguration(ctx context.Context, namespace, name string, options reconcileOptions) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := f.kube.Get(ctx, namespace, name, nc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if v1alpha1.IsPaused(nc) {
		return nil
	}
	if nc.DeletionTimestamp != nil {
		return f.releaseDeleted(ctx, nc)
	}
	if !options.full && hasStaticAddresses(nc) {
		return nil
	}
	before := nc.DeepCopy()
	nn, err := options.findNetwork(ctx, f.kube, nc)
	var unresolved network.Unresolved
	if errors.As(err, &unresolved) {
		return f.patchStatus(ctx, before, nc, setProblem(nc, reconcile.WaitError{Reason: unresolved.Reason, Message: unresolved.Message}))
	}
	if err != nil {
		return err
	}
	served, problem := isServed(nc, nn, f.strict)
	if !served {
		return f.releaseUnserved(ctx, nc)
	}
	var r request
	if problem == nil {
		r, problem = f.requestOf(nc, nn)
	}
	if problem != nil {
		if isNetworkNotReady(problem) && network.IsConfigured(nc) {
			return nil // the machine keeps its addresses whatever becomes of the network
		}
		return f.patchStatus(ctx, before, nc, setProblem(nc, problem))
	}
	full := options.full || kube.ReconcileRequested(nc)
	if isReserved(nc, r, nn) && !full {
		return nil
	}
	return f.reserveAddresses(ctx, nc, nn, r)
}

// requestOf returns what a NetworkConfiguration needs of Kea. Its error is a WaitError or a
// UserError that says why nothing can be reserved yet.
func (f *function) requestOf(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace) (request, error) {
	if len(f.clients) == 0 {
		return request{}, reconcile.WaitError{Reason: "KeaNotConfigured", Message: fmt.Sprintf(
			"this installation has no Kea: set KEA_URL, or use a network of type static in place of NetworkNamespace %s", nn.Name)}
	}
	if err := checkNetworkReady(nn); err != nil {
		return request{}, err
	}
	r, err := newRequest(nc, nn, f.classes)
	if err != nil {
		return request{}, err
	}
	return r, checkOpen(nn, r)
}

// reserveAddresses reserves the addresses of a request on every Kea server and writes the
// result into the status of the NetworkConfiguration. The finalizer comes first, so that no
// reservation outlives its NetworkConfiguration.
func (f *function) reserveAddresses(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, r request) error {
	before := nc.DeepCopy()
	if kube.AddFinalizer(nc, v1alpha1.FinalizerKea) {
		if _, err := f.kube.Patch(ctx, before, nc); err != nil {
			return err
		}
		before = nc.DeepCopy()
	}
	var err error
	if r.reserved, err = network.ControlPlanes(ctx, f.kube, nc.Namespace); err != nil {
		return err
	}
	reserved, err := f.reserve(ctx, nc, r, isReserved(nc, r, nn))
	if err == nil && len(reserved.down) == 0 {
		err = f.releaseFormerPrefix(ctx, nc, nn, r)
	}
	var outage kea.Outage
	_, isUserError := reconcile.AsUserError(err)
	if err != nil && !errors.As(err, &outage) && !isUserError {
		return f.releaseIfDeleted(ctx, nc, fmt.Errorf("reserve addresses for %s/%s: %w", nc.Namespace, nc.Name, err))
	}
	waited := waitsForAddress(nc)
	outcome := setStatus(nc, nn, r, attempt{reserved, err, len(f.clients)}, f.now())
	unwritten := nc.ResourceVersion
	if err := f.patchStatus(ctx, before, nc, outcome); err != nil {
		return f.releaseIfDeleted(ctx, nc, err)
	}
	if reserved.changed && nc.ResourceVersion == unwritten {
		if err := f.releaseIfDeleted(ctx, nc, nil); err != nil {
			return err
		}
	}
	if (waited || reserved.released) && err == nil {
		return f.requeueNextWaiting(ctx, nn)
	}
	if reconcile.Retried(err) {
		return fmt.Errorf("reserve addresses for %s/%s: %w", nc.Namespace, nc.Name, err)
	}
	return nil
}

// releaseIfDeleted removes the reservations of a NetworkConfiguration that was deleted
// during this delivery, because the delivery of its deletion may have ended before they
// were made. A status that could be written proves that the NetworkConfiguration exists; a
// machine that uses it keeps its reservations. Otherwise it returns err.
func (f *function) releaseIfDeleted(ctx context.Context, nc *v1alpha1.NetworkConfiguration, err error) error {
	current := &v1alpha1.NetworkConfiguration{}
	unread := f.kube.Get(ctx, nc.Namespace, nc.Name, current)
	if unread != nil && !kube.NotFound(unread) {
		return unread
	}
	if current.UID == nc.UID && (current.DeletionTimestamp == nil || len(network.Users(current)) > 0) {
		return err
	}
	if failed := f.removeReservations(ctx, nc); failed != nil {
		return fmt.Errorf("remove the reservations of %s/%s, which is deleted: %w", nc.Namespace, nc.Name, failed)
	}
	return err
}

func (f *function) patchStatus(ctx context.Context, before, nc *v1alpha1.NetworkConfiguration, o reconcile.Outcome) error {
	o.Changed = o.Changed && !network.IsReportedByMachine(before, nc)
	_, err := reconcile.PatchStatus(ctx, f.kube, before, nc, string(nc.Status.Phase), o)
	return err
}
