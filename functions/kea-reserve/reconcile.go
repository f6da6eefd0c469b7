package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/orphans"
)

type function struct {
	kube   *kube.Client
	sender sender
	// clients are the Kea servers, the primary one first. There are none where
	// the installation has no Kea.
	clients []*Client
	lock    *Lock
	classes []string
	// allowed are the subnets of Kea that may be used although this stack has not made them.
	allowed subnetList
	strict  bool
	now     func() time.Time
	// namespace is the stack's, and shared is whether another installation of the stack uses
	// the same Kea.
	namespace string
	shared    bool
}

// sender sends events to the broker.
type sender interface {
	Send(ctx context.Context, e event.Event) error
}

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	again := in.Type() == events.TypeResync
	if again && orphans.IsRef(ref) {
		return nil, f.checkOrphans(ctx)
	}
	switch ref.Kind {
	case "NetworkConfiguration":
		how := reconcileOptions{full: again}
		if nc := (v1alpha1.NetworkConfiguration{}); events.Carried(in, &nc) && f.isServedElsewhere(ctx, &nc, &how) {
			return nil, nil
		}
		return nil, kube.OnConflict(func() error { return f.reconcileConfiguration(ctx, ref.Namespace, ref.Name, how) })
	case "NetworkNamespace":
		return nil, f.reconcileNetwork(ctx, ref.Namespace, ref.Name, again)
	default:
		return nil, nil
	}
}

// reconcileOptions is how to look at a NetworkConfiguration. Unless it is thorough, Kea is left
// alone where the status says that all is there.
type reconcileOptions struct {
	full bool
	// found is the network that a NetworkConfiguration that names it as in is in, if
	// this delivery has asked for that before.
	found *v1alpha2.NetworkNamespace
	in    string
}

// findNetwork finds the network of a NetworkConfiguration.
func (l *reconcileOptions) findNetwork(ctx context.Context, c *kube.Client, nc *v1alpha1.NetworkConfiguration) (*v1alpha2.NetworkNamespace, error) {
	name := network.NameFor(nc)
	if l.found != nil && l.in == name {
		return l.found, nil
	}
	nn, err := network.Find(ctx, c, nc.Namespace, name)
	if err == nil {
		l.found, l.in = nn, name
	}
	return nn, err
}

// isServedElsewhere tells whether a NetworkConfiguration gets its addresses from another
// function, and nothing is left of what this one may have given it.
func (f *function) isServedElsewhere(ctx context.Context, nc *v1alpha1.NetworkConfiguration, how *reconcileOptions) bool {
	if slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea) {
		return false
	}
	if nc.DeletionTimestamp != nil || hasStaticAddresses(nc) {
		return true
	}
	nn, err := how.findNetwork(ctx, f.kube, nc)
	if err != nil {
		return false
	}
	ours, _ := isServed(nc, nn, f.strict)
	return !ours
}

// reconcileConfiguration brings one NetworkConfiguration a step further.
func (f *function) reconcileConfiguration(ctx context.Context, namespace, name string, how reconcileOptions) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := f.kube.Get(ctx, namespace, name, nc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if nc.DeletionTimestamp != nil {
		return f.releaseDeleted(ctx, nc)
	}
	if !how.full && hasStaticAddresses(nc) {
		return nil
	}
	before := nc.DeepCopy()
	nn, err := how.findNetwork(ctx, f.kube, nc)
	var unresolved network.Unresolved
	if errors.As(err, &unresolved) {
		return f.write(ctx, before, nc, setProblem(nc, problem{unresolved.Reason, unresolved.Message, false}))
	}
	if err != nil {
		return err
	}
	ours, p := isServed(nc, nn, f.strict)
	if !ours {
		return f.releaseUnserved(ctx, nc)
	}
	w, p := f.requestOf(nc, nn, p)
	switch {
	case p != nil && p.reason == reasonNotReady && isReady(nc):
		return nil
	case p != nil:
		return f.write(ctx, before, nc, setProblem(nc, *p))
	}
	thorough := how.full || nc.Annotations[v1alpha1.AnnotationReconcile] != ""
	if isReserved(nc, w, nn) && !thorough {
		return nil
	}
	return f.reserveAddresses(ctx, nc, nn, w)
}

// requestOf returns what a NetworkConfiguration needs of Kea, or the first problem that is in
// the way of that. mismatch is one that is known already.
func (f *function) requestOf(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, mismatch *problem) (request, *problem) {
	if mismatch != nil {
		return request{}, mismatch
	}
	if p := f.checkProvisioned(nn); p != nil {
		return request{}, p
	}
	w, p := newRequest(nc, nn, f.classes)
	if p == nil {
		p = checkOpen(nn, w)
	}
	return w, p
}

// checkProvisioned says what is missing beside the NetworkConfiguration itself.
func (f *function) checkProvisioned(nn *v1alpha2.NetworkNamespace) *problem {
	if len(f.clients) == 0 {
		return &problem{"KeaNotConfigured", fmt.Sprintf(
			"this installation has no Kea: set KEA_URL, or set ipAllocation.type of NetworkNamespace %s to static", nn.Name), false}
	}
	return checkNetworkReady(nn)
}

// reserveAddresses has Kea reserve what a NetworkConfiguration wishes.
func (f *function) reserveAddresses(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, w request) error {
	before := nc.DeepCopy()
	if kube.AddFinalizer(nc, v1alpha1.FinalizerKea) {
		if _, err := f.kube.Patch(ctx, before, nc); err != nil {
			return err
		}
		before = nc.DeepCopy()
	}
	var err error
	if w.reserved, err = network.ControlPlanes(ctx, f.kube, nc.Namespace); err != nil {
		return err
	}
	g, err := f.reserve(ctx, w, isReserved(nc, w, nn))
	if err == nil && len(g.down) == 0 {
		err = f.releaseFormerPrefix(ctx, nc, nn, w)
	}
	var out Outage
	if err != nil && !errors.As(err, &out) && !errors.As(err, new(refusal)) {
		return f.releaseIfDeleted(ctx, nc, fmt.Errorf("reserve addresses for %s/%s: %w", nc.Namespace, nc.Name, err))
	}
	waited := waitsForAddress(nc)
	told := setStatus(nc, nn, w, g, err, len(f.clients), f.now())
	unwritten := nc.ResourceVersion
	if err := f.write(ctx, before, nc, told); err != nil {
		return f.releaseIfDeleted(ctx, nc, err)
	}
	if g.changed && nc.ResourceVersion == unwritten {
		if err := f.releaseIfDeleted(ctx, nc, nil); err != nil {
			return err
		}
	}
	if waited && err == nil {
		return f.requeueNextWaiting(ctx, nn)
	}
	if out.IsTransient() {
		return fmt.Errorf("reserve addresses for %s/%s: %w", nc.Namespace, nc.Name, out)
	}
	return nil
}

// releaseIfDeleted takes back what was reserved for a NetworkConfiguration that has been
// deleted meanwhile: its release may have come before, and does not come again. A
// status that could be written proves that it has not, and so does a machine that it
// is kept for. why is what is returned then.
func (f *function) releaseIfDeleted(ctx context.Context, nc *v1alpha1.NetworkConfiguration, why error) error {
	now := &v1alpha1.NetworkConfiguration{}
	err := f.kube.Get(ctx, nc.Namespace, nc.Name, now)
	if err != nil && !kube.NotFound(err) {
		return err
	}
	if now.UID == nc.UID && (now.DeletionTimestamp == nil || len(network.Users(now)) > 0) {
		return why
	}
	if err := f.removeReservations(ctx, nc); err != nil {
		return fmt.Errorf("take back what was reserved for %s/%s, which is gone: %w", nc.Namespace, nc.Name, err)
	}
	return why
}

// write patches the status if it has changed, and tells people if the reason has.
func (f *function) write(ctx context.Context, before, nc *v1alpha1.NetworkConfiguration, told story) error {
	if _, err := f.kube.PatchStatus(ctx, before, nc); err != nil {
		return err
	}
	if told.news {
		f.kube.Tell(ctx, nc, told.warning, told.reason, told.message)
	}
	events.Report(ctx, string(nc.Status.Phase), told.message)
	return nil
}
