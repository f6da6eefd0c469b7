package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// ensureMachines saves the manifests of the machines, and makes those that are
// missing.
func (f *function) ensureMachines(ctx context.Context, c *cluster) error {
	var missing []*v1alpha1.Machine
	files := map[string][]byte{}
	for _, m := range c.plan.members {
		if c.machines[m.name] != nil || c.unmade[m.name] {
			continue
		}
		machine := machineOf(c.KubernetesCluster, c.plan, m, f.images.disk(c.KubernetesCluster, c.plan.talos))
		content, err := manifest(machine)
		if err != nil {
			return err
		}
		missing, files[m.name+".yaml"] = append(missing, machine), content
	}
	if len(missing) > 0 {
		if err := f.nameMachines(ctx, c, missing); err != nil {
			return err
		}
		if err := f.results.save(ctx, c.KubernetesCluster, files); err != nil {
			return err
		}
	}
	for _, m := range missing {
		if err := c.tolerate(v1alpha1.ConditionMachinesCreated, f.createMachine(ctx, c, m)); err != nil {
			return err
		}
	}
	c.created, c.Status.Adding = true, nil
	return nil
}

// nameMachines writes down which machines are about to be made, where a cluster has had
// all of its machines before. Two deliveries, one of which still sees a machine that
// the other has seen go, would give two names to the one that takes its place: the
// later of them gets a conflict, and then makes the same.
func (f *function) nameMachines(ctx context.Context, c *cluster, missing []*v1alpha1.Machine) error {
	if !isTrue(c.KubernetesCluster, v1alpha1.ConditionMachinesCreated) {
		return nil
	}
	c.Status.Adding = nil
	for _, m := range missing {
		c.Status.Adding = append(c.Status.Adding, m.Name)
	}
	adding := waits{reason: "WaitingForMachines", message: "adds " + count(len(missing), "machine") + ", first of all " + missing[0].Name}
	if err := f.admit(ctx, c, adding); !errors.As(err, new(waits)) {
		return err
	}
	return f.patchStatus(ctx, c)
}

func (f *function) readMachines(ctx context.Context, c *cluster) error {
	list := &v1alpha1.MachineList{}
	if err := f.kube.List(ctx, c.Namespace, v1alpha1.LabelClusterName+"="+c.Name, list); err != nil {
		return err
	}
	c.machines = map[string]*v1alpha1.Machine{}
	for i := range list.Items {
		m := &list.Items[i]
		if metav1.IsControlledBy(m, c.KubernetesCluster) {
			c.machines[m.Name] = m
		}
	}
	return nil
}

func (f *function) createMachine(ctx context.Context, c *cluster, m *v1alpha1.Machine) error {
	err := f.kube.Create(ctx, m)
	if kube.AlreadyExists(err) {
		if err = f.kube.Get(ctx, m.Namespace, m.Name, m); err == nil {
			err = belongs(m, c.KubernetesCluster)
		}
	}
	if message, refused := kube.Refused(err); refused {
		return fault{"MachineRefused", message}
	}
	if err != nil {
		return err
	}
	c.machines[m.Name] = m
	return nil
}

// waitForMachines says which machines are not up yet, and why.
func (f *function) waitForMachines(c *cluster) error {
	var late []string
	detail := ""
	for _, m := range c.plan.members {
		machine := c.machines[m.name]
		if running(machine) {
			continue
		}
		late = append(late, m.name)
		if detail == "" && machine != nil {
			detail = whyNotReady(machine)
		}
	}
	if len(late) == 0 {
		return f.waitForTalos(c)
	}
	slices.Sort(late)
	message := "waits for " + count(len(late), "machine") + ", first of all " + late[0]
	return waits{reason: "WaitingForMachines", message: message + detail}
}

// waitForTalos says which node has to answer first while all machines run.
func (f *function) waitForTalos(c *cluster) error {
	message := fmt.Sprintf("%d of %s are running; waiting for Talos to answer", len(c.plan.members), count(len(c.plan.members), "machine"))
	for _, m := range c.plan.members {
		if machine := c.machines[m.name]; !installed(machine) {
			message += fmt.Sprintf(" on %s (%s)", m.name, net.JoinHostPort(addressOf(machine), apiPort))
			break
		}
	}
	return waits{reason: "WaitingForNode", message: message, silent: true}
}
