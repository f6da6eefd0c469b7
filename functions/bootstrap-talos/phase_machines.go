package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// machineStore reads, creates and deletes the Machines of clusters.
type machineStore struct {
	kube      *kube.Client
	manifests *manifests.Store
	images    talos.Images
	status    *statusWriter
}

// readFirst is read at the start of a delivery that creates what is missing. It does not wait for the Machines of a new cluster, which has
// none: if it has nevertheless, their creation finds them.
func (s *machineStore) readFirst(ctx context.Context, c *cluster) error {
	if len(c.Status.Conditions) == 0 {
		return s.readWith(ctx, c, s.kube.ListCached)
	}
	return s.read(ctx, c)
}

// read reads the Machines of a cluster.
func (s *machineStore) read(ctx context.Context, c *cluster) error {
	return s.readWith(ctx, c, s.kube.List)
}

func (s *machineStore) readWith(ctx context.Context, c *cluster, readList func(ctx context.Context, namespace, selector string, list kube.ObjectList) error) error {
	list := &v1alpha1.MachineList{}
	if err := readList(ctx, c.Namespace, v1alpha1.LabelClusterName+"="+c.Name, list); err != nil {
		return err
	}
	c.observed.machines = map[string]*v1alpha1.Machine{}
	for i := range list.Items {
		m := &list.Items[i]
		if metav1.IsControlledBy(m, c.KubernetesCluster) {
			c.observed.machines[m.Name] = m
		}
	}
	return nil
}

// checkProviders returns a UserError for a MachineProvider that does not exist. A cluster with
// nodes only does without its machines.
func (s *machineStore) checkProviders(ctx context.Context, c *cluster) error {
	known := map[string]error{}
	c.observed.withoutProvider = map[string]bool{}
	for _, m := range c.plan.Members {
		ref := m.Properties.ProviderRef
		if ref == nil || c.observed.machines[m.Name] != nil {
			continue
		}
		err, asked := known[ref.Name]
		if !asked {
			err = s.kube.Get(ctx, "", ref.Name, &v1alpha1.MachineProvider{})
			if kube.NotFound(err) {
				err = reconcile.UserError{Reason: "ProviderNotFound", Message: fmt.Sprintf("pool %s: MachineProvider %s does not exist: create it, or change providerRef", m.Pool, ref.Name)}
			}
			known[ref.Name] = err
		}
		if c.observed.withoutProvider[m.Name] = err != nil; err != nil {
			if err := c.tolerateUserError(v1alpha1.ConditionMachinesCreated, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// ensure saves the manifests of missing machines, and creates them.
func (s *machineStore) ensure(ctx context.Context, c *cluster) error {
	var missing []*v1alpha1.Machine
	files := map[string][]byte{}
	for _, m := range c.plan.Members {
		if c.observed.machines[m.Name] != nil || c.observed.withoutProvider[m.Name] {
			continue
		}
		machine := manifests.NewMachine(c.KubernetesCluster, c.plan, m, s.images.Disk(c.KubernetesCluster, c.plan.Talos), c.observed.machineNetwork)
		content, err := manifests.EncodeMachine(machine)
		if err != nil {
			return err
		}
		missing, files[m.Name+".yaml"] = append(missing, machine), content
	}
	if len(missing) > 0 {
		if err := s.recordNew(ctx, c, missing); err != nil {
			return err
		}
		if err := s.manifests.Save(ctx, c.KubernetesCluster, files); err != nil {
			return err
		}
	}
	for _, m := range missing {
		if err := c.tolerateUserError(v1alpha1.ConditionMachinesCreated, s.create(ctx, c, m)); err != nil {
			return err
		}
	}
	c.report.machinesCreated, c.Status.Adding = true, nil
	return nil
}

// recordNew writes the names of new machines into the status of a cluster that was
// complete before. Otherwise a delivery that still sees a deleted Machine would choose another
// name for its replacement. It gets a conflict instead, and creates the same one.
func (s *machineStore) recordNew(ctx context.Context, c *cluster, missing []*v1alpha1.Machine) error {
	if !isTrue(c.KubernetesCluster, v1alpha1.ConditionMachinesCreated) {
		return nil
	}
	c.Status.Adding = nil
	for _, m := range missing {
		c.Status.Adding = append(c.Status.Adding, m.Name)
	}
	adding := reconcile.WaitError{Reason: reasonWaitingForMachines, Message: "adding " + plan.Plural(len(missing), "machine") + ", the first is " + missing[0].Name}
	if err := s.status.reportWaiting(ctx, c, adding); !errors.As(err, new(reconcile.WaitError)) {
		return err
	}
	return s.status.patch(ctx, c)
}

// create creates a Machine. A Machine of that name that exists has to belong to the cluster. If it has its configuration and the label by
// which read finds it, the cluster has adopted it since then: create returns a conflict, because the plan was made without the versions
// that the node runs.
func (s *machineStore) create(ctx context.Context, c *cluster, m *v1alpha1.Machine) error {
	err := s.kube.Create(ctx, m)
	if kube.AlreadyExists(err) {
		if err = s.kube.Get(ctx, m.Namespace, m.Name, m); err == nil {
			err = manifests.CheckOwner(m, c.KubernetesCluster)
		}
		if err == nil && plan.IsInstalled(m) && m.Labels[v1alpha1.LabelClusterName] == c.Name {
			err = s.kube.ConflictOf(m, "the cluster has adopted it meanwhile")
		}
	}
	if message, refused := kube.RejectionMessage(err); refused {
		return reconcile.UserError{Reason: "MachineRefused", Message: message}
	}
	if err != nil {
		return err
	}
	c.observed.machines[m.Name] = m
	return nil
}

// isGone reports whether a Machine does not exist now: it may have been created after the
// delivery has listed them.
func (s *machineStore) isGone(ctx context.Context, c *cluster, name string) (bool, error) {
	err := s.kube.Get(ctx, c.Namespace, name, &v1alpha1.Machine{})
	if kube.NotFound(err) {
		return true, nil
	}
	return false, err
}

// deleteAll deletes the Machines of a cluster, unless one of them is protected.
func (s *machineStore) deleteAll(ctx context.Context, c *cluster, names []string) error {
	for _, name := range names {
		if m := c.observed.machines[name]; m.Spec.Protected {
			return protectedError(m)
		}
	}
	for _, name := range names {
		m := c.observed.machines[name]
		if err := s.removeEtcdFinalizer(ctx, m); err != nil {
			return err
		}
		if m.DeletionTimestamp != nil {
			continue
		}
		if err := refusedDeletion(s.kube.Delete(ctx, m)); err != nil {
			return err
		}
	}
	return nil
}

// waitForMachines returns a WaitError that names the machines that do not run, and why.
func waitForMachines(c *cluster) error {
	var unready []string
	detail := ""
	for _, m := range c.plan.Members {
		machine := c.observed.machines[m.Name]
		if plan.IsRunning(machine) {
			continue
		}
		unready = append(unready, m.Name)
		if detail == "" && machine != nil {
			detail = whyNotRunning(machine)
		}
	}
	if len(unready) == 0 {
		return waitForTalos(c)
	}
	slices.Sort(unready)
	message := "waiting for " + plan.Plural(len(unready), "machine") + ", the first is " + unready[0]
	return reconcile.WaitError{Reason: reasonWaitingForMachines, Message: message + detail}
}

// whyNotRunning returns after ": " why a Machine does not run.
func whyNotRunning(m *v1alpha1.Machine) string {
	if m.Spec.PowerState == v1alpha1.PowerStopped {
		return ": it is switched off by spec.powerState: write Running there, or have the cluster remove it with the annotation " + v1alpha1.AnnotationRemove + "=true"
	}
	return plan.NotReadySuffix(m)
}

// waitForTalos returns a WaitError that names the node that has to answer, if all machines run.
func waitForTalos(c *cluster) error {
	message := "every machine is running; waiting for Talos to answer"
	for _, m := range c.plan.Members {
		if machine := c.observed.machines[m.Name]; !plan.IsInstalled(machine) {
			message += fmt.Sprintf(" on %s (%s)", m.Name, net.JoinHostPort(plan.Address(machine), talos.APIPort))
			break
		}
	}
	return reconcile.WaitError{Reason: "WaitingForNode", Message: message, Requeue: true}
}

// checkNodesReady returns a WaitError for members that are no Ready Nodes. Machines send an
// event when they run. Nodes send one only with an event sink: see awaitNodeEvent.
func checkNodesReady(_ context.Context, c *cluster) error {
	silent := false
	var unready []string
	for _, m := range c.plan.Members {
		if n, _ := c.observed.node(m.Name); n.Ready || plan.IsNodeUpgrading(c.KubernetesCluster, m.Name) || plan.IsNodeResizing(c.KubernetesCluster, m.Name) {
			continue
		}
		unready = append(unready, m.Name)
		silent = silent || plan.IsRunning(c.observed.machines[m.Name])
	}
	if len(unready) == 0 {
		return nil
	}
	if !silent {
		return waitForMachines(c)
	}
	return reconcile.WaitError{Reason: "WaitingForNodes", Message: fmt.Sprintf("waiting for %s to be Ready, the first is %s", plan.Plural(len(unready), "node"), unready[0]), Requeue: true}
}
