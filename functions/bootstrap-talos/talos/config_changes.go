package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// ConfigUpdate is the outcome of UpdateConfig.
type ConfigUpdate string

// Outcomes of UpdateConfig. An outcome that leaves a difference is the reason of a condition.
const (
	ConfigUnchanged   ConfigUpdate = "Same"
	ConfigChanged     ConfigUpdate = "Changed"
	ConfigReboots     ConfigUpdate = "Rebooting"
	ConfigStaged      ConfigUpdate = "Staged"
	ConfigNeedsReboot ConfigUpdate = "RebootNeeded"
)

// ConfigResult is what UpdateConfig has found out and done.
type ConfigResult struct {
	Outcome ConfigUpdate
	// Difference is what the node did not run, without secrets.
	Difference string
	// NodeConfig is what the node was installed with, of the parts that only a new node gets, and Withheld the
	// difference from the wanted ones, without secrets.
	NodeConfig nodeconfig.Parts
	Withheld   string
	// before is the configuration that the node has run.
	before config.Provider
}

// UpdateConfig has a node run a configuration: without a reboot if Talos can, and otherwise as
// the policy says. The node does not get what only a new node gets. A second call
// does nothing. It calls allow before a change, and returns its error.
func UpdateConfig(
	ctx context.Context, address string, a *Credentials, wanted []byte, policy v1alpha1.ConfigChanges, allow func() error,
) (ConfigResult, error) {
	result, change, err := compareConfig(ctx, address, a, wanted, policy)
	if err != nil || result.Outcome != "" {
		return result, err
	}
	if err := allow(); err != nil {
		return ConfigResult{}, err
	}
	result.Outcome, err = changeConfig(ctx, address, a, change, policy)
	return result, err
}

// configChange is a configuration for a node that is installed.
type configChange struct {
	data []byte
	// needsReboot is whether Talos applies it at the next boot, although it accepts it without one.
	needsReboot bool
}

// compareConfig returns the difference between the configuration of a node and the wanted one. The
// outcome is empty if the node has to be changed.
func compareConfig(
	ctx context.Context, address string, a *Credentials, wanted []byte, policy v1alpha1.ConfigChanges,
) (result ConfigResult, change configChange, err error) {
	ctx, c, end, err := Connect(ctx, address, a, longTimeout)
	if err != nil {
		return result, change, err
	}
	defer end()
	present, err := readActiveConfig(ctx, c, address)
	if err != nil {
		return result, change, err
	}
	result.before, result.NodeConfig = present, nodeconfig.Read(present)
	if stored, err := present.Bytes(); err == nil && bytes.Equal(stored, wanted) {
		result.Outcome = ConfigUnchanged // nearly always, and at a fraction of the CPU of what follows
		return result, change, nil
	}
	rendered, err := configloader.NewFromBytes(wanted)
	if err != nil {
		return result, change, fmt.Errorf("read configuration for %s: %w", address, err)
	}
	next, err := nodeconfig.Keep(present, rendered)
	if err != nil {
		return result, change, err
	}
	if result.Withheld, err = describeWithheld(next, rendered); err != nil {
		return result, change, err
	}
	if result.Difference, err = diffConfigs(present, next); err != nil || result.Difference == "" {
		result.Outcome = ConfigUnchanged
		return result, change, err
	}
	if policy == v1alpha1.ConfigStaged && isStaged(ctx, c, next) {
		result.Outcome = ConfigStaged
		return result, change, nil
	}
	change.needsReboot = nodeconfig.NeedsReboot(present, next)
	change.data, err = Encode(next)
	return result, change, err
}

// describeWithheld returns what a node does not get of a configuration, or an empty string: the names of the parts that
// only a new node gets, or the difference, which may be one of keys.
func describeWithheld(kept, wanted config.Provider) (string, error) {
	if parts := nodeconfig.Read(kept).Compare(nodeconfig.Read(wanted)).NewNode; len(parts) > 0 {
		return "another " + strings.Join(parts, " and "), nil
	}
	return diffConfigs(kept, wanted)
}

// changeConfig gives a node a configuration.
func changeConfig(ctx context.Context, address string, a *Credentials, change configChange, policy v1alpha1.ConfigChanges) (ConfigUpdate, error) {
	ctx, c, end, err := Connect(ctx, address, a, longTimeout)
	if err != nil {
		return "", err
	}
	defer end()
	if !change.needsReboot {
		err = applyConfig(ctx, c, change.data, machine.ApplyConfigurationRequest_NO_REBOOT)
		if err == nil {
			return ConfigChanged, nil
		}
		if status.Code(err) != codes.InvalidArgument {
			return "", err
		}
	}
	switch policy {
	case v1alpha1.ConfigStaged:
		return ConfigStaged, applyConfig(ctx, c, change.data, machine.ApplyConfigurationRequest_STAGED)
	case v1alpha1.ConfigReboot:
		return ConfigReboots, applyConfig(ctx, c, change.data, machine.ApplyConfigurationRequest_REBOOT)
	default:
		return ConfigNeedsReboot, nil
	}
}

// MissingParts returns which parts in NodeConfig the node does not have.
func (r ConfigResult) MissingParts(ctx context.Context, address string, a *Credentials) ([]string, error) {
	ctx, c, end, err := Connect(ctx, address, a, longTimeout)
	if err != nil {
		return nil, err
	}
	defer end()
	var has nodeconfig.Installed
	for _, volume := range []string{constants.StatePartitionLabel, constants.EphemeralPartitionLabel} {
		status, err := safe.StateGetByID[*block.VolumeStatus](ctx, c.COSI, volume)
		if err != nil {
			return nil, fmt.Errorf("read volume %s of %s: %w", volume, address, err)
		}
		if status.TypedSpec().EncryptionProvider != block.EncryptionProviderNone {
			has.Encrypted = append(has.Encrypted, volume)
		}
		if volume == constants.EphemeralPartitionLabel {
			has.EphemeralSize = status.TypedSpec().Size
		}
	}
	cmdline, err := safe.StateGetByID[*runtime.KernelCmdline](ctx, c.COSI, runtime.KernelCmdlineID)
	if err != nil {
		return nil, fmt.Errorf("read the arguments of the kernel of %s: %w", address, err)
	}
	has.KernelArguments = strings.Fields(cmdline.TypedSpec().Cmdline)
	return has.Missing(r.before), nil
}

// isStaged reports whether a configuration is on the disk of the node for its next boot.
func isStaged(ctx context.Context, c *client.Client, wanted config.Provider) bool {
	kept, err := safe.StateGetByID[*resources.MachineConfig](ctx, c.COSI, resources.PersistentID)
	if err != nil {
		return false
	}
	diff, err := diffConfigs(kept.Provider(), wanted)
	return err == nil && diff == ""
}

func applyConfig(ctx context.Context, c *client.Client, config []byte, mode machine.ApplyConfigurationRequest_Mode) error {
	_, err := c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: config, Mode: mode})
	if err != nil {
		return fmt.Errorf("apply configuration: %w", err)
	}
	return nil
}

// MaxDiff is the number of bytes of a difference that a message quotes.
const MaxDiff = 400

// diffConfigs returns the lines by which two configurations differ, without secrets. It is empty
// if they are equal.
func diffConfigs(present, wanted config.Provider) (string, error) {
	before, err := Encode(present)
	if err != nil {
		return "", fmt.Errorf("encode configuration: %w", err)
	}
	after, err := Encode(wanted)
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
	if len(shown) > MaxDiff {
		shown = strings.ToValidUTF8(shown[:MaxDiff], "") + "..."
	}
	return shown, nil
}
