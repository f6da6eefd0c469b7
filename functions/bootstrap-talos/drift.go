package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// amend compares what every node runs with what it should, and changes what
// differs: without a reboot where Talos can, and otherwise as the spec says. It
// tells in the condition ConfigCurrent. Nodes that are rebooted are so one after
// the other, since it is called only while all are Ready.
func (f *function) amend(ctx context.Context, c *cluster) error {
	configs, err := f.renderAll(ctx, c, c.plan.members)
	if err != nil {
		return err
	}
	policy := v1alpha1.ConfigNoReboot
	if c.Spec.Talos != nil && c.Spec.Talos.ConfigChanges != "" {
		policy = c.Spec.Talos.ConfigChanges
	}
	c.config = configReport{true, "ConfigCurrent", "every node runs what is wanted"}
	for _, m := range c.plan.members {
		machine := c.machines[m.name]
		if !running(machine) || !installed(machine) {
			continue
		}
		outcome, diff, err := amendNode(ctx, addressOf(machine), c.access, configs[m.name], policy)
		if err != nil {
			return waits{reason: "WaitingForNode", message: fmt.Sprintf("waits for node %s, to compare its configuration", m.name), silent: true}
		}
		if outcome == amendSame || outcome == amendChanged {
			continue
		}
		c.config = configReport{false, string(outcome), fmt.Sprintf("node %s: %s", m.name, diff)}
		if outcome == amendReboots {
			return waits{reason: "ChangingNodes", message: fmt.Sprintf("reboots node %s, which takes its new configuration only so", m.name), silent: true}
		}
	}
	return nil
}

// amendEarly gives the nodes of a cluster that has never been Running the changes that need
// no reboot: a registry mirror may be what they wait for. Nodes that do not answer in time
// have their turn in the next delivery. It returns only what a user has to change.
func (f *function) amendEarly(ctx context.Context, c *cluster) error {
	if !c.patient || c.Status.Version != "" || c.access == nil {
		return nil
	}
	members := slices.DeleteFunc(slices.Clone(c.plan.members), func(m member) bool {
		return !running(c.machines[m.name]) || !installed(c.machines[m.name])
	})
	configs, err := f.renderAll(ctx, c, members)
	if err != nil {
		return err
	}
	for end := f.now().Add(longPatience); len(members) > 0 && f.now().Before(end); members = members[1:] {
		m := members[0]
		address := addressOf(c.machines[m.name])
		if state, _ := probe(ctx, address, c.access); state != stateOurs {
			continue
		}
		outcome, diff, err := amendNode(ctx, address, c.access, configs[m.name], v1alpha1.ConfigNoReboot)
		if err == nil && outcome == amendBlocked {
			c.config = configReport{false, string(outcome), fmt.Sprintf("node %s: %s", m.name, diff)}
		}
	}
	return nil
}

// configReport is what people are told about the configuration of nodes.
type configReport struct {
	current         bool
	reason, message string
}

// amendment is what has become of a node's difference.
type amendment string

const (
	amendSame    amendment = "Same"
	amendChanged amendment = "Changed"
	amendReboots amendment = "Rebooting"
	amendStaged  amendment = "Staged"
	amendBlocked amendment = "RebootNeeded"
)

// amendNode has a node run a configuration. It returns what has become of that, and
// the difference without secrets.
func amendNode(ctx context.Context, address string, a *access, wanted []byte, policy v1alpha1.ConfigChanges) (amendment, string, error) {
	ctx, c, end, err := talk(ctx, address, a, bootstrapRPC)
	if err != nil {
		return "", "", err
	}
	defer end()
	present, err := safe.StateGetByID[*resources.MachineConfig](ctx, c.COSI, resources.ActiveID)
	if err != nil {
		return "", "", fmt.Errorf("read configuration of %s: %w", address, err)
	}
	next, err := configloader.NewFromBytes(wanted)
	if err != nil {
		return "", "", fmt.Errorf("read configuration for %s: %w", address, err)
	}
	diff, err := difference(present.Provider(), next)
	if err != nil || diff == "" {
		return amendSame, "", err
	}
	if policy == v1alpha1.ConfigStaged && isStaged(ctx, c, next) {
		return amendStaged, diff, nil
	}
	err = applyIn(ctx, c, wanted, machine.ApplyConfigurationRequest_NO_REBOOT)
	if err == nil {
		return amendChanged, diff, nil
	}
	if status.Code(err) != codes.InvalidArgument {
		return "", "", err
	}
	switch policy {
	case v1alpha1.ConfigStaged:
		return amendStaged, diff, applyIn(ctx, c, wanted, machine.ApplyConfigurationRequest_STAGED)
	case v1alpha1.ConfigReboot:
		return amendReboots, diff, applyIn(ctx, c, wanted, machine.ApplyConfigurationRequest_REBOOT)
	default:
		return amendBlocked, diff, nil
	}
}

// isStaged tells whether a configuration waits on the node's disk for its next boot.
func isStaged(ctx context.Context, c *client.Client, wanted config.Provider) bool {
	kept, err := safe.StateGetByID[*resources.MachineConfig](ctx, c.COSI, resources.PersistentID)
	if err != nil {
		return false
	}
	diff, err := difference(kept.Provider(), wanted)
	return err == nil && diff == ""
}

func applyIn(ctx context.Context, c *client.Client, config []byte, mode machine.ApplyConfigurationRequest_Mode) error {
	_, err := c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: config, Mode: mode})
	if err != nil {
		return fmt.Errorf("apply configuration: %w", err)
	}
	return nil
}

// longestDiff is how much of a difference people are shown.
const longestDiff = 400

// difference lists the lines by which two configurations differ, without secrets.
// It is empty where they say the same.
func difference(present, wanted config.Provider) (string, error) {
	before, err := encode(present)
	if err != nil {
		return "", fmt.Errorf("encode configuration: %w", err)
	}
	after, err := encode(wanted)
	if err != nil {
		return "", fmt.Errorf("encode configuration: %w", err)
	}
	if string(before) == string(after) {
		return "", nil
	}
	text, err := configdiff.DiffConfigs(present.RedactSecrets("REDACTED"), wanted.RedactSecrets("REDACTED"))
	if err != nil {
		return "", errors.New("compare configurations: they cannot be compared") // the cause could quote a secret
	}
	var lines []string
	for line := range strings.Lines(text) {
		if changed := strings.TrimPrefix(strings.TrimPrefix(line, "+++"), "---"); changed == line && strings.ContainsAny(line[:1], "+-") {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	if len(lines) == 0 {
		return "secrets differ", nil
	}
	shown := strings.Join(lines, ", ")
	if len(shown) > longestDiff {
		shown = strings.ToValidUTF8(shown[:longestDiff], "") + "..."
	}
	return shown, nil
}
