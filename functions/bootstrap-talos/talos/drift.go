package talos

import (
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
	resources "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// UpdateConfig has a node run a configuration: without a reboot if Talos can, and otherwise as
// the policy says. It returns the outcome, and the difference without secrets. A second call
// does nothing. It calls allow before a change, and returns its error.
func UpdateConfig(
	ctx context.Context, address string, a *Credentials, wanted []byte, policy v1alpha1.ConfigChanges, allow func() error,
) (ConfigUpdate, string, error) {
	outcome, diff, err := compareConfig(ctx, address, a, wanted, policy)
	if err != nil || outcome != "" {
		return outcome, diff, err
	}
	if err := allow(); err != nil {
		return "", "", err
	}
	outcome, err = changeConfig(ctx, address, a, wanted, policy)
	return outcome, diff, err
}

// compareConfig returns the difference between the configuration of a node and the wanted one. The
// outcome is empty if the node has to be changed.
func compareConfig(
	ctx context.Context, address string, a *Credentials, wanted []byte, policy v1alpha1.ConfigChanges,
) (ConfigUpdate, string, error) {
	ctx, c, end, err := Connect(ctx, address, a, longTimeout)
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
	diff, err := diffConfigs(present.Provider(), next)
	if err != nil || diff == "" {
		return ConfigUnchanged, "", err
	}
	if policy == v1alpha1.ConfigStaged && isStaged(ctx, c, next) {
		return ConfigStaged, diff, nil
	}
	return "", diff, nil
}

// changeConfig gives a node a configuration.
func changeConfig(ctx context.Context, address string, a *Credentials, wanted []byte, policy v1alpha1.ConfigChanges) (ConfigUpdate, error) {
	ctx, c, end, err := Connect(ctx, address, a, longTimeout)
	if err != nil {
		return "", err
	}
	defer end()
	err = applyConfig(ctx, c, wanted, machine.ApplyConfigurationRequest_NO_REBOOT)
	if err == nil {
		return ConfigChanged, nil
	}
	if status.Code(err) != codes.InvalidArgument {
		return "", err
	}
	switch policy {
	case v1alpha1.ConfigStaged:
		return ConfigStaged, applyConfig(ctx, c, wanted, machine.ApplyConfigurationRequest_STAGED)
	case v1alpha1.ConfigReboot:
		return ConfigReboots, applyConfig(ctx, c, wanted, machine.ApplyConfigurationRequest_REBOOT)
	default:
		return ConfigNeedsReboot, nil
	}
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
