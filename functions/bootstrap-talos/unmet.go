package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// withUnmet adds to what a cluster waits for what Talos says on the first node that is not
// Ready, control planes first. A node that does not answer adds nothing.
func (c *cluster) withUnmet(ctx context.Context, late error) error {
	var w waits
	if !errors.As(late, &w) || !w.silent || w.reason == "RemovingNodes" || c.access == nil {
		return late
	}
	for _, m := range c.plan.members {
		machine := c.machines[m.name]
		n, _ := c.node(m.name)
		if !running(machine) || !installed(machine) || n.ready {
			continue
		}
		if said := unmetOn(ctx, addressOf(machine), c.access); said != "" {
			w.message += fmt.Sprintf("; Talos on %s is %s", m.name, said)
		}
		return w
	}
	return late
}

// unmetOn is the stage of a node, and what Talos says that it waits for.
func unmetOn(ctx context.Context, address string, a *access) string {
	if state, _ := probe(ctx, address, a); state != stateOurs {
		return ""
	}
	ctx, client, end, err := talk(ctx, address, a, dialTimeout)
	if err != nil {
		return ""
	}
	defer end()
	status, err := safe.StateGetByID[*runtime.MachineStatus](ctx, client.COSI, runtime.MachineStatusID)
	if err != nil || status.TypedSpec().Status.Ready {
		return ""
	}
	var unmet []string
	for _, u := range status.TypedSpec().Status.UnmetConditions {
		unmet = append(unmet, u.Reason)
	}
	return fmt.Sprintf("%s: %s", status.TypedSpec().Stage, strings.Join(unmet, ", "))
}
