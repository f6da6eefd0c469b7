package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// connectFor returns the hypervisor of a MachineProvider for work on a Machine. It returns a UserError if that is
// another one than the one that has the virtual machines. The result of the last inspection is in the status, so it asks the
// hypervisor only if its endpoint has changed since.
func (r providerReconciler) connectFor(ctx context.Context, p *v1alpha1.MachineProvider) (hypervisor.Interface, error) {
	h, err := r.connect(ctx, p)
	identifier, ok := h.(hypervisor.Identifier)
	if err != nil || !ok || p.Status.Hypervisor == nil {
		return h, err
	}
	if needsIdentification(p, identifier.Endpoint()) {
		err = r.identify(ctx, p, h)
	} else {
		err = checkHypervisor(p)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

// needsIdentification reports whether the status of a MachineProvider does not say which hypervisor an endpoint leads to: it is another
// endpoint, or an administrator may have resolved the problem of a MachineProvider that is being deleted, which resync does not inspect.
func needsIdentification(p *v1alpha1.MachineProvider, endpoint string) bool {
	if other := p.Status.OtherHypervisor; other != nil {
		return other.Endpoint != endpoint || p.DeletionTimestamp != nil
	}
	return p.Status.Hypervisor.Endpoint != endpoint
}

// identify reads which hypervisor the endpoint of a MachineProvider leads to, and writes it into the status. It returns the
// UserError of checkHypervisor.
func (r providerReconciler) identify(ctx context.Context, p *v1alpha1.MachineProvider, h hypervisor.Interface) error {
	i := inspection{}
	if err := i.identify(ctx, h); err != nil {
		return err
	}
	if isOther(p, i.identity) {
		i.listGuests(ctx, h)
	}
	machines := &v1alpha1.MachineList{}
	if err := r.kube.List(ctx, "", "", machines); err != nil {
		return err
	}
	before := p.DeepCopy()
	problem, outcome := compareHypervisor(p, i, machines.Items), reconcile.Outcome{}
	if problem != nil && p.DeletionTimestamp == nil { // otherwise Ready says which Machines the deletion waits for
		outcome = setProviderStatus(p, i.Health, p.Status.MachineCount, problem)
	}
	if _, err := reconcile.PatchStatus(ctx, r.kube, before, p, string(p.Status.Phase), outcome); err != nil {
		return err
	}
	return problem
}

// identify reads the identity of a hypervisor that has one.
func (i *inspection) identify(ctx context.Context, h hypervisor.Interface) error {
	identifier, ok := h.(hypervisor.Identifier)
	if !ok {
		return nil
	}
	id, err := identifier.Identity(ctx)
	if err != nil {
		return err
	}
	i.identity = &v1alpha1.HypervisorIdentity{ID: id, Endpoint: identifier.Endpoint()}
	return nil
}

// listGuests lists the virtual machines of a hypervisor that can.
func (i *inspection) listGuests(ctx context.Context, h hypervisor.Interface) {
	if lister, ok := h.(hypervisor.GuestLister); ok {
		i.removalCommand = lister.RemovalCommand
		i.guests, i.listError = lister.Guests(ctx)
	}
}

// compareHypervisor writes which hypervisor an inspection has found into the status of a MachineProvider. It returns the UserError of
// checkHypervisor.
func compareHypervisor(p *v1alpha1.MachineProvider, i inspection, machines []v1alpha1.Machine) error {
	setHypervisor(p, i, machines)
	return checkHypervisor(p)
}

// isOther reports whether an identity is known, and is another one than the recorded one.
func isOther(p *v1alpha1.MachineProvider, found *v1alpha1.HypervisorIdentity) bool {
	recorded := p.Status.Hypervisor
	return recorded != nil && found != nil && found.ID != "" && found.ID != recorded.ID
}

// setHypervisor writes the identity that an inspection has found into the status of a MachineProvider:
//
//	found                                                status
//	none                                                 as before, with the new endpoint
//	the first one, or the recorded one                   found
//	another, in the annotation accept-hypervisor         found
//	another, and no Machine has a virtual machine        found
//	another, which has the virtual machines              found: its authority was renewed, or they were moved
//	another                                              as before, and the other one
func setHypervisor(p *v1alpha1.MachineProvider, i inspection, machines []v1alpha1.Machine) {
	found, s := i.identity, &p.Status
	switch {
	case found == nil:
	case found.ID == "":
		if s.Hypervisor != nil {
			s.Hypervisor, s.OtherHypervisor = &v1alpha1.HypervisorIdentity{ID: s.Hypervisor.ID, Endpoint: found.Endpoint}, nil
		}
	case isOther(p, found) && p.Annotations[v1alpha1.AnnotationAcceptHypervisor] != found.ID && !hasGuests(p.Name, i, machines):
		s.OtherHypervisor = found
	default:
		s.Hypervisor, s.OtherHypervisor = found, nil
	}
}

// hasGuests reports whether a hypervisor has the virtual machines of the Machines of a MachineProvider: at least one of them, and
// all that have run and are not being deleted, because others may have no mark yet or no longer exist. It is true if there are none.
func hasGuests(provider string, i inspection, machines []v1alpha1.Machine) bool {
	listed := map[string]bool{}
	if i.listError == nil {
		for _, g := range i.guests {
			listed[g.UID] = true
		}
	}
	needed, found := 0, 0
	for n := range machines {
		m := &machines[n]
		if recordedProvider(m) != provider || m.Status.VMName == "" && m.Status.ProviderID == "" && m.Status.Task == nil {
			continue
		}
		needed++
		hasRun := m.Status.Phase == v1alpha1.MachineRunning || m.Status.Phase == v1alpha1.MachineStopped
		switch {
		case slices.ContainsFunc(v1alpha1.UIDs(m), func(uid string) bool { return listed[uid] }):
			found++
		case hasRun && m.DeletionTimestamp == nil:
			return false
		}
	}
	return found > 0 || needed == 0
}

// checkHypervisor returns a UserError for a MachineProvider whose endpoint leads to another hypervisor than the one that has the
// virtual machines.
func checkHypervisor(p *v1alpha1.MachineProvider) error {
	had, other := p.Status.Hypervisor, p.Status.OtherHypervisor
	if other == nil {
		return nil
	}
	back := fmt.Sprintf("write the former endpoint and credentials, of %s, again", placeOf(had))
	if had.Endpoint == other.Endpoint {
		back = "have its endpoint and credentials lead to the former one again"
	}
	return reconcile.UserError{Reason: "HypervisorChanged", Message: fmt.Sprintf("MachineProvider %[1]s leads to another hypervisor (%[2]s) than the one that has the virtual machines, so nothing is created, changed or deleted: "+
		"%[3]s, and create another MachineProvider for this one. If the former one is lost, run kubectl annotate machineprovider %[1]s --overwrite %[4]s=%[5]s: "+
		"then virtual machines that this one does not have are created again, with empty disks", p.Name, placeOf(other), back, v1alpha1.AnnotationAcceptHypervisor, other.ID)}
}

// placeOf says where a hypervisor is.
func placeOf(i *v1alpha1.HypervisorIdentity) string {
	if i.Endpoint == "" {
		return "this cluster"
	}
	return i.Endpoint
}

// isAccepted reports whether an administrator has accepted the other hypervisor that was found.
func isAccepted(p *v1alpha1.MachineProvider) bool {
	other := p.Status.OtherHypervisor
	return other != nil && p.Annotations[v1alpha1.AnnotationAcceptHypervisor] == other.ID
}
