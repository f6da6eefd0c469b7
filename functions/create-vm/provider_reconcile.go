package main

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// providerReconciler chooses, inspects, and releases MachineProviders.
type providerReconciler struct {
	kube *kube.Client
	// connect returns the hypervisor of a MachineProvider.
	connect hypervisor.Connector
	// reporter publishes whether hypervisors answer.
	reporter *backendhealth.Reporter
	// now returns the time.
	now func() time.Time
	// installTimeout is how long a delivery waits for a hypervisor that is being installed.
	installTimeout time.Duration
}

// reconcile refreshes the status of a MachineProvider on an event of resync or when
// its spec has changed.
func (r providerReconciler) reconcile(ctx context.Context, name, cause string) error {
	p := &v1alpha1.MachineProvider{}
	if err := r.kube.Get(ctx, "", name, p); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if p.DeletionTimestamp != nil {
		return r.release(ctx, p)
	}
	if err := r.addFinalizer(ctx, p); err != nil || !isDue(p, cause) {
		return err
	}
	before := p.DeepCopy()
	i, err := r.inspect(ctx, p)
	machines := &v1alpha1.MachineList{}
	if err := r.kube.List(ctx, "", "", machines); err != nil {
		return err
	}
	providers := &v1alpha1.MachineProviderList{}
	if err := r.kube.List(ctx, "", "", providers); err != nil {
		return err
	}
	setMachineGauges(machines.Items, providers.Items)
	if err == nil {
		err = compareHypervisor(p, i, machines.Items)
	}
	outcome := setProviderStatus(p, i.Health, countMachines(machines.Items, name), err)
	orphansFound := err == nil && setOrphans(p, i, machines.Items, r.now())
	if _, err := reconcile.PatchStatus(ctx, r.kube, before, p, string(p.Status.Phase), outcome); err != nil {
		return err
	}
	if orphansFound {
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionOrphansFound)
		r.kube.RecordEvent(ctx, p, true, c.Reason, c.Message)
	}
	return nil
}

// isDue reports whether a cause requires the inspection of the hypervisor of a MachineProvider.
func isDue(p *v1alpha1.MachineProvider, cause string) bool {
	return cause == causeResync || p.Status.ObservedGeneration != p.Generation || kube.ReconcileRequested(p) || isAccepted(p)
}

// inspection is the observed state of a hypervisor.
type inspection struct {
	hypervisor.Health
	// identity is that of the hypervisor. Nil stands for a kind without one.
	identity *v1alpha1.HypervisorIdentity
	// guests are the virtual machines that the stack created. listError is why they are unknown.
	guests    []v1alpha1.Orphan
	listError error
	// removalCommand returns how an administrator removes a guest.
	removalCommand func(id string) string
}

// inspect reads the state of the hypervisor of a provider. If the provider is new, it waits a
// moment for a hypervisor that is being installed at the same time.
func (r providerReconciler) inspect(ctx context.Context, p *v1alpha1.MachineProvider) (i inspection, err error) {
	timeout := r.installTimeout
	if p.Status.Phase != "" {
		timeout = 0
	}
	const pause = 250 * time.Millisecond
	_ = wait.PollUntilContextTimeout(ctx, pause, timeout, true, func(context.Context) (bool, error) {
		i, err = r.inspectOnce(ctx, p)
		_, isUserError := asUserError(err)
		return err == nil || (isUserError && !errors.As(err, new(hypervisor.NotInstalledError))), nil
	})
	return i, err
}

// inspectOnce reads the state of the hypervisor of a provider, and lists its guests.
func (r providerReconciler) inspectOnce(ctx context.Context, p *v1alpha1.MachineProvider) (i inspection, err error) {
	h, err := r.connect(ctx, p)
	if err != nil {
		return i, err
	}
	began := time.Now()
	i.Health, err = h.Inspect(ctx)
	if found, ok := findingOf(began, time.Now(), err); ok {
		found.Inspection = true
		r.reporter.Record(ctx, string(p.Spec.Type), p.Name, found)
	}
	if err == nil {
		err = i.identify(ctx, h)
	}
	if err == nil && (!p.Spec.Shared || isOther(p, i.identity)) {
		i.listGuests(ctx, h)
	}
	return i, err
}
