package main

import (
	"context"

	"github.com/vitistack/stack/functions/internal/kube"
)

// allocations is what the IPAllocations of a namespace say together.
type allocations struct {
	namespace string
	// exists has the UIDs of all, held the address of each that is not released, and allocated those of isAllocated.
	exists          map[string]bool
	held, allocated map[string]string
	// longestWaiting has, for each pool, the IPAllocation that has waited longest for an
	// address. queued are the names of the NetworkConfigurations that wait for one.
	longestWaiting map[string]object
	queued         map[string]bool
}

// isQueued reports whether an object waits for another one to release an address, and has no
// other reason for a reconcile.
func (o object) isQueued() bool {
	return !o.isRequested() && !o.isChanged() && o.Status.Ready().Reason == "PoolExhausted"
}

// pool identifies the pool that an IPAllocation waits for, within its namespace.
func (o object) pool() string { return o.Spec.NetworkNamespaceName + "/" + o.Spec.IPFamily }

func newAllocations(namespace string) *allocations {
	return &allocations{namespace: namespace, exists: map[string]bool{}, held: map[string]string{}, allocated: map[string]string{}, longestWaiting: map[string]object{}, queued: map[string]bool{}}
}

// readAllocations inspects the IPAllocations, and keeps what they say together if the slice
// reads all of them.
func (p *round) readAllocations(ctx context.Context, k kind) (complete bool, err error) {
	isWhole, all := p.progress.Continue == "" && p.progress.After == "", map[string]*allocations{}
	complete, err = forEach(ctx, p, k.resource, kube.Page{Limit: pageSize}, func(o object) error {
		namespace := o.Metadata.Namespace
		if all[namespace] == nil {
			all[namespace] = newAllocations(namespace)
		}
		if o.isAllocated() {
			p.progress.Allocated++
		}
		all[namespace].add(o, !needsReconcile(k, o, p.now(), p.window()))
		return p.sendIfNeeded(ctx, k, o)
	})
	if complete && isWhole {
		p.all = all
	}
	return complete, err
}

// allocationsOf returns the IPAllocations of a namespace. Unless this slice has read all, it lists
// them. All lists are in the order of namespaces, so a slice lists each namespace once.
func (p *round) allocationsOf(ctx context.Context, namespace string) (*allocations, error) {
	switch {
	case p.all != nil && p.all[namespace] != nil:
		return p.all[namespace], nil
	case p.all != nil:
		return newAllocations(namespace), nil
	case p.namespaceRead != nil && p.namespaceRead.namespace == namespace:
		return p.namespaceRead, nil
	}
	a := newAllocations(namespace)
	next := kube.Page{Namespace: namespace, Limit: pageSize}
	for more := true; more; more = next.Continue != "" {
		var got list[object]
		if err := p.api.ListInto(ctx, allocationKind.resource, next, &got); err != nil {
			return nil, err
		}
		p.progress.Pages++
		for _, o := range got.Items {
			a.add(o, !needsReconcile(allocationKind, o, p.now(), p.window()))
		}
		next.Continue = got.Metadata.Continue
	}
	p.namespaceRead = a
	return a, nil
}

// add adds an IPAllocation. upToDate is whether it needs no reconcile.
func (a *allocations) add(o object, upToDate bool) {
	for _, uid := range o.uids() {
		a.exists[uid] = true
		if o.isAllocated() {
			a.allocated[uid] = o.Status.Address
		}
		if o.Status.Phase != phaseReleased {
			a.held[uid] = o.Status.Address
		}
	}
	if upToDate || !o.isQueued() {
		return
	}
	a.queued[o.Spec.NetworkConfigurationName] = true
	first, ok := a.longestWaiting[o.pool()]
	if !ok || o.Metadata.CreationTimestamp.Before(&first.Metadata.CreationTimestamp) {
		a.longestWaiting[o.pool()] = o
	}
}

// sendIfNeeded sends an event for an object that needs a reconcile. Of the IPAllocations that wait
// for an address of the same pool, only the oldest gets one, because each that is served
// requeues the next.
func (p *round) sendIfNeeded(ctx context.Context, k kind, o object) error {
	if k.name == machine {
		if p.progress.Machines == nil {
			p.progress.Machines = map[string]int{}
		}
		p.progress.Machines[o.Status.Provider]++
	}
	isMiscounted := k.name == machineProvider && o.Status.MachineCount != p.progress.Machines[o.Metadata.Name]
	return p.sendIfDue(ctx, k, o, isMiscounted)
}

// sendIfDue sends an event for an object that is due or is a MachineProvider that has miscounted its Machines.
func (p *round) sendIfDue(ctx context.Context, k kind, o object, isMiscounted bool) error {
	if p.isInTransit(o) || !isMiscounted && !needsReconcile(k, o, p.now(), p.window()) {
		return nil
	}
	if o.isQueued() && (k.name == ipAllocation || k.name == networkConfiguration) {
		a, err := p.allocationsOf(ctx, o.Metadata.Namespace)
		if err != nil || k.name == ipAllocation && a.longestWaiting[o.pool()].Metadata.UID != o.Metadata.UID || k.name == networkConfiguration && a.queued[o.Metadata.Name] {
			return err
		}
	}
	return p.send(ctx, k, o)
}

// isInTransit reports whether the event of an object's last write may not have been delivered yet. The gateway requests
// another round if the object is still due after the grace.
func (p *round) isInTransit(o object) bool {
	return !p.full && p.now().Sub(o.lastWritten()) < p.grace
}

// window returns the time whose slots a full round includes, and nil for another round.
func (p *round) window() *window {
	if !p.full {
		return nil
	}
	return &window{previous: p.progress.Previous.Time, start: p.started}
}
