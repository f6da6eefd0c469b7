package talos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type applyMode = machineapi.ApplyConfigurationRequest_Mode

const (
	applyReboot   = machineapi.ApplyConfigurationRequest_REBOOT
	applyAuto     = machineapi.ApplyConfigurationRequest_AUTO
	applyNoReboot = machineapi.ApplyConfigurationRequest_NO_REBOOT
	applyStaged   = machineapi.ApplyConfigurationRequest_STAGED
	applyTry      = machineapi.ApplyConfigurationRequest_TRY
)

// installedMode is the platform mode of a machine that boots an installed disk image.
type installedMode struct {
	mode
	installed bool
}

func (m installedMode) RequiresInstall() bool { return m.mode.RequiresInstall() && !m.installed }

// ApplyConfiguration applies a configuration in the mode of the request.
func (a *api) ApplyConfiguration(ctx context.Context, in *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	b := a.boot
	f := b.node.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.node.boot != b {
		return nil, errRestarting
	}
	if b.node.config == nil || (b.inMaintenance() && !b.node.atLeast(config.TalosVersion1_13)) {
		return b.applyFirst(in)
	}
	if !rolesOf(ctx).Includes(role.Admin) {
		return nil, errNotAuthorized
	}
	if b.sequence != "" {
		return nil, status.Error(codes.FailedPrecondition,
			"configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot")
	}
	return b.applyNext(in)
}

var errRestarting = status.Error(codes.Unavailable, "the node is restarting")

// inMaintenance reports whether the insecure API listens.
func (b *boot) inMaintenance() bool {
	id := b.identity.Load()
	return id != nil && id.maintenance
}

// check parses and validates a configuration for this machine.
func (b *boot) check(data []byte) (config.Provider, []string, error) {
	cfg, err := configloader.NewFromBytes(data)
	if err != nil {
		return nil, nil, unreadable{err}
	}
	if err := speaks(b.node.version(), cfg); err != nil {
		return nil, nil, unreadable{err}
	}
	warnings, err := cfg.Validate(installedMode{b.node.Machine.mode(), b.node.Installed})
	return cfg, warnings, err
}

// unreadable is the error about a configuration that cannot be parsed.
type unreadable struct{ error }

// applyFirst applies the configuration of a machine that has none.
func (b *boot) applyFirst(in *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	modern := b.node.atLeast(config.TalosVersion1_13)
	if !modern && in.Mode != applyAuto && in.Mode != applyReboot && in.Mode != applyTry {
		return nil, status.Errorf(codes.Unimplemented, "apply configuration --mode='%s' is not supported in maintenance mode",
			strings.ReplaceAll(strings.ToLower(in.Mode.String()), "_", "-"))
	}
	cfg, warnings, err := b.check(in.Data)
	if err != nil {
		return nil, refusal(err, modern)
	}
	answer := firstAnswer(in.Mode, modern)
	switch {
	case in.DryRun && !modern:
		answer.ModeDetails = "Dry run summary:\nNode is running in maintenance mode and does not have a config yet."
	case in.DryRun:
		answer.ModeDetails, err = dryRun(answer.ModeDetails, nil, cfg)
	default:
		answer.Warnings = warnings
		err = b.accepted(answer.Mode, in.Data, cfg)
	}
	if err != nil {
		return nil, err
	}
	return applied(answer), nil
}

// firstAnswer returns a version's answer to a first configuration. Up to 1.12 it is empty.
func firstAnswer(asked applyMode, modern bool) *machineapi.ApplyConfiguration {
	switch {
	case !modern:
		return &machineapi.ApplyConfiguration{}
	case asked == applyStaged:
		return &machineapi.ApplyConfiguration{Mode: asked, ModeDetails: "Staged configuration to be applied after the next reboot"}
	case asked == applyTry:
		return &machineapi.ApplyConfiguration{Mode: asked, ModeDetails: "Applied configuration without a reboot"}
	}
	return &machineapi.ApplyConfiguration{Mode: applyNoReboot, ModeDetails: "Applied configuration without a reboot"}
}

// accepted stores a first configuration. An incomplete one changes nothing that is simulated.
func (b *boot) accepted(mode applyMode, data []byte, cfg config.Provider) error {
	n := b.node
	if !cfg.CompleteForBoot() {
		return nil
	}
	if mode == applyStaged {
		n.Staged = data
		return n.save()
	}
	again := n.config != nil
	n.Config, n.Volatile = data, !n.Installed
	if err := n.parse(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := n.save(); err != nil {
		return err
	}
	b.printf("[talos] apply config request: mode %s", strings.ToLower(mode.String()))
	if !again {
		b.later(n.fleet.timing.Linger, b.leaveMaintenance)
	}
	return nil
}

// refusal returns a version's error about a rejected configuration. Without a configuration, versions
// up to 1.12 return Unknown for one that cannot be parsed.
func refusal(err error, modern bool) error {
	var broken unreadable
	isBroken := errors.As(err, &broken)
	switch {
	case isBroken && modern:
		return status.Error(codes.InvalidArgument, broken.Error())
	case isBroken:
		return status.Errorf(codes.Unknown, "failed to parse config: %s", broken.Error())
	case modern:
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return status.Errorf(codes.InvalidArgument, "configuration validation failed: %s", err)
}

// applyNext changes the configuration of a configured machine.
func (b *boot) applyNext(in *machineapi.ApplyConfigurationRequest) (*machineapi.ApplyConfigurationResponse, error) {
	cfg, warnings, err := b.check(in.Data)
	if err != nil {
		return nil, refusal(err, true)
	}
	if cfg.RawV1Alpha1() == nil {
		return nil, status.Error(codes.InvalidArgument,
			"the applied machine configuration doesn't contain v1alpha1 config, did you mean to patch the machine config instead?")
	}
	mode, details, err := chooseMode(in.Mode, immediately(b.node.config, cfg))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	if in.DryRun {
		details, err := dryRun(details, b.node.config, cfg)
		return applied(&machineapi.ApplyConfiguration{Mode: mode, ModeDetails: details}), err
	}
	b.printf("[talos] apply config request: mode %s", strings.ToLower(mode.String()))
	if mode == applyTry {
		timeout := constants.ConfigTryTimeout
		if in.TryModeTimeout != nil {
			timeout = in.TryModeTimeout.AsDuration()
		}
		details += fmt.Sprintf("\nThe config is applied in 'try' mode and will be automatically reverted back in %s", timeout)
		b.try(timeout)
	} else if b.undoTry != nil {
		b.undoTry.Stop()
	}
	if err := b.take(mode, in.Data); err != nil {
		return nil, err
	}
	return applied(&machineapi.ApplyConfiguration{Mode: mode, Warnings: warnings, ModeDetails: details}), nil
}

// dryRun returns what would be done, and the difference.
func dryRun(details string, current config.Encoder, next config.Provider) (string, error) {
	diff, err := configdiff.DiffConfigs(current, next)
	if err != nil {
		return "", fmt.Errorf("failed to generate diff: %w", err)
	}
	if diff == "" {
		diff = "No changes."
	}
	return fmt.Sprintf("Dry run summary:\n%s (skipped in dry-run).\nConfig diff:\n\n%s", details, diff), nil
}

// chooseMode returns the mode of a change. reboot is why a reboot is required, or empty.
func chooseMode(asked applyMode, obstacle error) (applyMode, string, error) {
	const without, with = "Applied configuration without a reboot", "Applied configuration with a reboot"
	switch asked {
	case applyTry, applyNoReboot:
		return asked, without, obstacle
	case applyStaged:
		return asked, "Staged configuration to be applied after the next reboot", nil
	case applyReboot:
		return asked, with, nil
	case applyAuto:
		if obstacle != nil {
			return applyReboot, with + ": " + obstacle.Error(), nil
		}
		return applyNoReboot, without, nil
	}
	return asked, "", fmt.Errorf("incorrect mode '%s' specified for the apply config call", asked)
}

// take makes a checked configuration the machine's own.
func (b *boot) take(mode applyMode, data []byte) error {
	n := b.node
	switch mode {
	case applyStaged:
		n.Staged = data
		err := n.save()
		b.refresh()
		return err
	case applyReboot:
		n.Staged = data
		if err := n.save(); err != nil {
			return err
		}
		b.rebootSequence("")
		return nil
	case applyTry: // until a reboot or the timeout: it is not persistent
		kept := n.Config
		n.Config = data
		err := n.parse()
		n.Config = kept
		b.reconfigured()
		return err
	}
	n.Config, n.Staged = data, nil
	if err := n.parse(); err != nil {
		return err
	}
	if err := n.save(); err != nil {
		return err
	}
	b.reconfigured()
	return nil
}

// try reverts a configuration after a timeout.
func (b *boot) try(timeout time.Duration) {
	if b.undoTry != nil {
		b.undoTry.Stop()
	}
	f := b.node.fleet
	b.undoTry = time.AfterFunc(timeout, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if b.node.boot != b {
			return
		}
		b.printf("[talos] rolling back the configuration")
		if err := b.node.parse(); err != nil {
			b.fail("roll back the configuration", err)
		}
		b.reconfigured()
	})
}

// reconfigured applies a changed configuration to a running machine.
func (b *boot) reconfigured() {
	b.node.provisionUserVolumes()
	b.refresh()
	b.relisten()
	c := b.node.cluster()
	if c == nil || b.joined == "" {
		return
	}
	k := b.kubelet()
	if k.Name == b.joined && k.Version == b.agent.Version && maps.Equal(k.StaticPods, b.agent.StaticPods) {
		if err := c.workload.Configure(k); err != nil {
			b.fail("configure the node", err)
		}
		return
	}
	if k.Name != b.joined {
		c.workload.Leave(b.joined)
	}
	b.joined = "" // the kubelet restarts
	b.node.fleet.reconcile(c)
}

func applied(answer *machineapi.ApplyConfiguration) *machineapi.ApplyConfigurationResponse {
	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{answer}}
}
