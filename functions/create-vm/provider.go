package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// providerOf returns the MachineProvider of a machine: the recorded one, the one that the spec
// names, or the default. It returns a UserError if there is none.
func (f *function) providerOf(ctx context.Context, m *v1alpha1.Machine) (*v1alpha1.MachineProvider, error) {
	name := recordedProvider(m)
	if name == "" && m.Spec.ProviderRef != nil {
		name = m.Spec.ProviderRef.Name
	}
	if name == "" {
		list := &v1alpha1.MachineProviderList{}
		if err := f.kube.List(ctx, "", "", list); err != nil {
			return nil, err
		}
		return f.defaultFor(ctx, m.Namespace, slices.DeleteFunc(list.Items, func(p v1alpha1.MachineProvider) bool { return p.DeletionTimestamp != nil }))
	}
	p := &v1alpha1.MachineProvider{}
	err := f.kube.Get(ctx, "", name, p)
	if err == nil && p.DeletionTimestamp != nil && recordedProvider(m) == "" {
		return nil, reconcile.UserError{Reason: "MachineProviderDeleting", Message: fmt.Sprintf("MachineProvider %s is being deleted: name another in spec.providerRef", name)}
	}
	if kube.NotFound(err) {
		if recordedProvider(m) != "" {
			return nil, reconcile.UserError{Reason: "MachineProviderNotFound", Message: fmt.Sprintf("MachineProvider %s, which the machine was made on, does not exist any more: create it again", name)}
		}
		return nil, reconcile.UserError{Reason: "MachineProviderNotFound", Message: fmt.Sprintf("MachineProvider %s does not exist: create it, or name another in spec.providerRef", name)}
	}
	if err == nil && recordedProvider(m) == "" {
		err = f.checkAllowed(ctx, p, m.Namespace)
	}
	return p, err
}

// checkAllowed returns a UserError unless the Machines of a namespace may use a
// MachineProvider.
func (f *function) checkAllowed(ctx context.Context, p *v1alpha1.MachineProvider, namespace string) error {
	allowed, err := kube.Allows(p.Spec.AllowedNamespaces, namespace, f.kube.LabelsOf(ctx, namespace))
	if errors.As(err, new(kube.InvalidSelector)) {
		return reconcile.UserError{Reason: "MachineProviderNotAllowed", Message: fmt.Sprintf("MachineProvider %s: %s", p.Name, err)}
	}
	if allowed || err != nil {
		return err
	}
	return reconcile.UserError{Reason: "MachineProviderNotAllowed", Message: fmt.Sprintf("MachineProvider %s is not for namespace %s: name another in spec.providerRef, or have the namespace added to spec.allowedNamespaces of the MachineProvider", p.Name, namespace)}
}

// defaultFor returns the default among the MachineProviders that a namespace may use.
func (f *function) defaultFor(ctx context.Context, namespace string, items []v1alpha1.MachineProvider) (*v1alpha1.MachineProvider, error) {
	var allowed []v1alpha1.MachineProvider
	var refused error
	for i := range items {
		switch err := f.checkAllowed(ctx, &items[i], namespace); {
		case err == nil:
			allowed = append(allowed, items[i])
		case errors.As(err, new(reconcile.UserError)):
			refused = cmp.Or(refused, err)
		default:
			return nil, err
		}
	}
	if len(allowed) == 0 && refused != nil {
		return nil, refused
	}
	return defaultProvider(allowed)
}

// recordedProvider returns the MachineProvider that is recorded in a Machine, or nothing if
// nothing has been created for it.
func recordedProvider(m *v1alpha1.Machine) string {
	if !slices.Contains(m.Finalizers, v1alpha1.FinalizerMachine) {
		return ""
	}
	if name := m.Annotations[v1alpha1.AnnotationProvider]; name != "" {
		return name
	}
	return m.Status.Provider
}

// defaultProvider returns the MachineProvider that is marked as default, or the only one.
func defaultProvider(items []v1alpha1.MachineProvider) (*v1alpha1.MachineProvider, error) {
	var marked []int
	var names []string
	for i, p := range items {
		names = append(names, p.Name)
		if p.Spec.Default {
			marked = append(marked, i)
		}
	}
	slices.Sort(names)
	switch {
	case len(items) == 0:
		return nil, reconcile.UserError{Reason: "NoMachineProvider", Message: "there is no MachineProvider: create one"}
	case len(items) == 1:
		return &items[0], nil
	case len(marked) == 1:
		return &items[marked[0]], nil
	case len(marked) > 1:
		return nil, reconcile.UserError{Reason: "MachineProviderAmbiguous", Message: "several MachineProviders are marked default: unmark all but one, or name one in spec.providerRef"}
	default:
		return nil, reconcile.UserError{Reason: "MachineProviderAmbiguous", Message: "no MachineProvider is marked default: name one of " + strings.Join(names, ", ") + " in spec.providerRef"}
	}
}

// reconcileProvider refreshes the status of a MachineProvider on an event of resync or when
// its spec has changed.
func (f *function) reconcileProvider(ctx context.Context, name, cause string) error {
	p := &v1alpha1.MachineProvider{}
	if err := f.kube.Get(ctx, "", name, p); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if p.DeletionTimestamp != nil {
		return f.releaseProvider(ctx, p)
	}
	if err := f.addProviderFinalizer(ctx, p); err != nil {
		return err
	}
	if cause != causeResync && p.Status.ObservedGeneration == p.Generation && !kube.AskedFor(p) {
		return nil
	}
	before := p.DeepCopy()
	i, err := f.inspect(ctx, p)
	machines := &v1alpha1.MachineList{}
	if err := f.kube.List(ctx, "", "", machines); err != nil {
		return err
	}
	providers := &v1alpha1.MachineProviderList{}
	if err := f.kube.List(ctx, "", "", providers); err != nil {
		return err
	}
	setMachineGauges(machines.Items, providers.Items)
	told := setProviderStatus(p, i.Health, countMachines(machines.Items, name), err)
	found := err == nil && setOrphans(p, i, machines.Items, f.now())
	if _, err := reconcile.PatchStatus(ctx, f.kube, before, p, string(p.Status.Phase), told); err != nil {
		return err
	}
	if found {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionOrphansFound)
		f.kube.Tell(ctx, p, true, c.Reason, c.Message)
	}
	return nil
}

// inspection is what a hypervisor has shown.
type inspection struct {
	hypervisor.Health
	// guests are the virtual machines that the stack made. unlisted is why they are unknown.
	guests   []v1alpha1.Orphan
	unlisted error
	// removalCommand returns how an administrator removes a guest.
	removalCommand func(id string) string
}

// inspect reads the state of the hypervisor of a provider. On the first read it waits a moment
// for one that is being installed beside its provider.
func (f *function) inspect(ctx context.Context, p *v1alpha1.MachineProvider) (i inspection, err error) {
	patience := f.patience
	if p.Status.Phase != "" {
		patience = 0
	}
	const pause = 250 * time.Millisecond
	over := time.After(patience)
	for {
		var h hypervisor.Interface
		if h, err = f.connect(ctx, p); err == nil {
			i.Health, err = h.Inspect(ctx)
		}
		if lister, ok := h.(hypervisor.GuestLister); ok && err == nil && !p.Spec.Shared {
			i.removalCommand = lister.RemovalCommand
			i.guests, i.unlisted = lister.Guests(ctx)
		}
		if _, refused := asUserError(err); err == nil || (refused && !errors.As(err, new(hypervisor.NotInstalledError))) {
			return i, err
		}
		select {
		case <-ctx.Done():
			return i, err
		case <-over:
			return i, err
		case <-time.After(pause):
		}
	}
}

func countMachines(machines []v1alpha1.Machine, provider string) (n int32) {
	for _, m := range machines {
		if m.Status.Provider == provider {
			n++
		}
	}
	return n
}

// setProviderStatus writes the result of an inspection into the status of a provider.
func setProviderStatus(p *v1alpha1.MachineProvider, h hypervisor.Health, machines int32, err error) reconcile.Outcome {
	s := &p.Status
	s.ObservedGeneration, s.MachineCount = p.Generation, machines
	if f, ok := asUserError(err); ok {
		s.Phase = v1alpha1.ProviderFailed
		return setProviderReady(p, f.Reason, f.Message)
	}
	if err != nil {
		s.Phase = v1alpha1.ProviderOffline
		return setProviderReady(p, "Unreachable", "the hypervisor does not answer as it should: "+stableMessage(err))
	}
	keepSmallChanges(s.Nodes, h.Nodes)
	s.Phase, s.Version, s.Nodes = v1alpha1.ProviderReady, h.Version, h.Nodes
	s.Capacity = capacityOf(h)
	setPrivileges(p, h)
	setSpoofProtection(p, h.SpoofProtection)
	return setProviderReady(p, "Healthy", "the hypervisor answers")
}

// setPrivileges writes which privileges the user of a provider lacks.
func setPrivileges(p *v1alpha1.MachineProvider, h hypervisor.Health) {
	const condition = v1alpha1.ConditionPrivilegesGranted
	switch {
	case h.MissingPrivileges == nil:
		meta.RemoveStatusCondition(&p.Status.Conditions, condition)
	case len(h.MissingPrivileges) == 0:
		kube.SetCondition(&p.Status.Conditions, p.Generation, condition, true, "PrivilegesGranted", "the user has every privilege that machines need")
	default:
		kube.SetCondition(&p.Status.Conditions, p.Generation, condition, false, "PrivilegesMissing",
			"grant to the user, and to its token if privileges are separated: "+strings.Join(h.MissingPrivileges, ", "))
	}
}

func setProviderReady(p *v1alpha1.MachineProvider, reason, message string) reconcile.Outcome {
	ok := p.Status.Phase == v1alpha1.ProviderReady
	news := kube.SetReady(&p.Status.Conditions, p.Generation, ok, reason, message)
	return reconcile.Outcome{Reason: reason, Message: message, Warning: !ok, Changed: news}
}

// stableMessage returns the part of an error that is the same at every attempt, so that it can
// stand in a condition: the innermost error of the network, without ports, or the words of the
// server.
func stableMessage(err error) string {
	var status apierrors.APIStatus
	var timeout net.Error
	var op *net.OpError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &status):
		return status.Status().Message
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.As(err, &unknown):
		return "its certificate is signed by an authority that is not trusted: write that into spec.endpoint.caBundle"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

func capacityOf(h hypervisor.Health) *v1alpha1.ProviderCapacity {
	cpu, memory := resource.Quantity{Format: resource.DecimalSI}, resource.Quantity{Format: resource.BinarySI}
	free := memory
	for _, n := range h.Nodes {
		if !n.Ready {
			continue
		}
		cpu.Add(n.CPU)
		memory.Add(n.Memory)
		free.Add(n.Memory)
		if n.MemoryUsed != nil {
			free.Sub(*n.MemoryUsed)
		}
	}
	if h.MemoryAvailable != nil {
		free = *h.MemoryAvailable
	}
	return &v1alpha1.ProviderCapacity{CPU: cpu, Memory: memory, MemoryAvailable: free}
}

// keepSmallChanges keeps the former usage of hosts where it has hardly changed, because a
// small change is not worth a write.
func keepSmallChanges(before, now []v1alpha1.ProviderNode) {
	for i := range now {
		n := &now[i]
		old := slices.IndexFunc(before, func(o v1alpha1.ProviderNode) bool { return o.Name == n.Name })
		if old < 0 {
			continue
		}
		if isSmallChange(before[old].CPUUsed, n.CPUUsed, n.CPU) {
			n.CPUUsed = before[old].CPUUsed
		}
		if isSmallChange(before[old].MemoryUsed, n.MemoryUsed, n.Memory) {
			n.MemoryUsed = before[old].MemoryUsed
		}
	}
}

func isSmallChange(before, now *resource.Quantity, whole resource.Quantity) bool {
	if before == nil || now == nil {
		return false
	}
	difference := before.AsApproximateFloat64() - now.AsApproximateFloat64()
	return math.Abs(difference) < whole.AsApproximateFloat64()/20
}

// setSpoofProtection writes whether machines of a provider can use the MAC address of another
// machine.
func setSpoofProtection(p *v1alpha1.MachineProvider, found *hypervisor.Finding) {
	const condition = v1alpha1.ConditionSpoofProtection
	if found == nil {
		meta.RemoveStatusCondition(&p.Status.Conditions, condition)
		return
	}
	kube.SetCondition(&p.Status.Conditions, p.Generation, condition, found.OK, found.Reason, found.Message)
}
