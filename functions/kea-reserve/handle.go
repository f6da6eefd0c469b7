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
	// controls are the Kea servers, the primary one first. There are none where
	// the installation has no Kea.
	controls []*control
	lock     *lock
	classes  []string
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
		how := look{thorough: again}
		if nc := (v1alpha1.NetworkConfiguration{}); events.Carried(in, &nc) && f.foreign(ctx, &nc, &how) {
			return nil, nil
		}
		return nil, kube.OnConflict(func() error { return f.settle(ctx, ref.Namespace, ref.Name, how) })
	case "NetworkNamespace":
		return nil, f.settleNetwork(ctx, ref.Namespace, ref.Name, again)
	default:
		return nil, nil
	}
}

// look is how to look at a NetworkConfiguration. Unless it is thorough, Kea is left
// alone where the status says that all is there.
type look struct {
	thorough bool
	// found is the network that a NetworkConfiguration that names it as in is in, if
	// this delivery has asked for that before.
	found *v1alpha2.NetworkNamespace
	in    string
}

// network finds the network of a NetworkConfiguration.
func (l *look) network(ctx context.Context, c *kube.Client, nc *v1alpha1.NetworkConfiguration) (*v1alpha2.NetworkNamespace, error) {
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

// foreign tells whether a NetworkConfiguration gets its addresses from another
// function, and nothing is left of what this one may have given it.
func (f *function) foreign(ctx context.Context, nc *v1alpha1.NetworkConfiguration, how *look) bool {
	if slices.Contains(nc.Finalizers, v1alpha1.FinalizerKea) {
		return false
	}
	if nc.DeletionTimestamp != nil || static(nc) {
		return true
	}
	nn, err := how.network(ctx, f.kube, nc)
	if err != nil {
		return false
	}
	ours, _ := serves(nc, nn, f.strict)
	return !ours
}

// settle brings one NetworkConfiguration a step further.
func (f *function) settle(ctx context.Context, namespace, name string, how look) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := f.kube.Get(ctx, namespace, name, nc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if nc.DeletionTimestamp != nil {
		return f.release(ctx, nc)
	}
	if !how.thorough && static(nc) {
		return nil
	}
	before := nc.DeepCopy()
	nn, err := how.network(ctx, f.kube, nc)
	var unresolved network.Unresolved
	if errors.As(err, &unresolved) {
		return f.write(ctx, before, nc, waiting(nc, problem{unresolved.Reason, unresolved.Message, false}))
	}
	if err != nil {
		return err
	}
	ours, p := serves(nc, nn, f.strict)
	if !ours {
		return f.abandon(ctx, nc)
	}
	w, p := f.wishOf(nc, nn, p)
	switch {
	case p != nil && p.reason == reasonNotReady && kept(nc):
		return nil
	case p != nil:
		return f.write(ctx, before, nc, waiting(nc, *p))
	}
	thorough := how.thorough || nc.Annotations[v1alpha1.AnnotationReconcile] != ""
	if settled(nc, w, nn) && !thorough {
		return nil
	}
	return f.grant(ctx, nc, nn, w)
}

// wishOf returns what a NetworkConfiguration needs of Kea, or the first problem that is in
// the way of that. mismatch is one that is known already.
func (f *function) wishOf(nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, mismatch *problem) (wish, *problem) {
	if mismatch != nil {
		return wish{}, mismatch
	}
	if p := f.notProvisioned(nn); p != nil {
		return wish{}, p
	}
	w, p := newWish(nc, nn, f.classes)
	if p == nil {
		p = closed(nn, w)
	}
	return w, p
}

// notProvisioned says what is missing beside the NetworkConfiguration itself.
func (f *function) notProvisioned(nn *v1alpha2.NetworkNamespace) *problem {
	if len(f.controls) == 0 {
		return &problem{"KeaNotConfigured", fmt.Sprintf(
			"this installation has no Kea: set KEA_URL, or set ipAllocation.type of NetworkNamespace %s to static", nn.Name), false}
	}
	return notReady(nn)
}

// grant has Kea reserve what a NetworkConfiguration wishes.
func (f *function) grant(ctx context.Context, nc *v1alpha1.NetworkConfiguration, nn *v1alpha2.NetworkNamespace, w wish) error {
	before := nc.DeepCopy()
	if kube.AddFinalizer(nc, v1alpha1.FinalizerKea) {
		if _, err := f.kube.Patch(ctx, before, nc); err != nil {
			return err
		}
		before = nc.DeepCopy()
	}
	var err error
	if w.kept, err = network.ControlPlanes(ctx, f.kube, nc.Namespace); err != nil {
		return err
	}
	g, err := f.reserve(ctx, w, settled(nc, w, nn))
	if err == nil && len(g.down) == 0 {
		err = f.leave(ctx, nc, nn, w)
	}
	var out outage
	if err != nil && !errors.As(err, &out) && !errors.As(err, new(refusal)) {
		return f.overtaken(ctx, nc, fmt.Errorf("reserve addresses for %s/%s: %w", nc.Namespace, nc.Name, err))
	}
	waited := exhausted(nc)
	told := conclude(nc, nn, w, g, err, len(f.controls), f.now())
	unwritten := nc.ResourceVersion
	if err := f.write(ctx, before, nc, told); err != nil {
		return f.overtaken(ctx, nc, err)
	}
	if g.changed && nc.ResourceVersion == unwritten {
		if err := f.overtaken(ctx, nc, nil); err != nil {
			return err
		}
	}
	if waited && err == nil {
		return f.wakeNext(ctx, nn)
	}
	if out.transient() {
		return fmt.Errorf("reserve addresses for %s/%s: %w", nc.Namespace, nc.Name, out)
	}
	return nil
}

// overtaken takes back what was reserved for a NetworkConfiguration that has been
// deleted meanwhile: its release may have come before, and does not come again. A
// status that could be written proves that it has not, and so does a machine that it
// is kept for. why is what is returned then.
func (f *function) overtaken(ctx context.Context, nc *v1alpha1.NetworkConfiguration, why error) error {
	now := &v1alpha1.NetworkConfiguration{}
	err := f.kube.Get(ctx, nc.Namespace, nc.Name, now)
	if err != nil && !kube.NotFound(err) {
		return err
	}
	if now.UID == nc.UID && (now.DeletionTimestamp == nil || len(network.Users(now)) > 0) {
		return why
	}
	if err := f.takeBack(ctx, nc); err != nil {
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
