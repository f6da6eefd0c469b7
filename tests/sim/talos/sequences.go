package talos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/tests/sim/talos/internal/etcd"
)

// run begins a sequence. A machine runs one sequence at a time. A second one is acknowledged like the
// first, and then an event reports that it fails.
func (b *boot) run(name, actor string, stage runtime.MachineStage, work func()) {
	if b.sequence != "" {
		b.events.publish(&machineapi.SequenceEvent{
			Sequence: name, Action: machineapi.SequenceEvent_NOOP,
			Error: &common.Error{Code: common.Code_LOCKED, Message: "sequence not started: locked"},
		}, actor)
		return
	}
	b.sequence = name
	b.events.publish(&machineapi.SequenceEvent{Sequence: name, Action: machineapi.SequenceEvent_START}, actor)
	b.enter(stage)
	b.later(0, work) // after the acknowledgement
}

// failed ends a sequence without its effect. The machine continues.
func (b *boot) failed(actor string, err error) {
	b.events.publish(&machineapi.SequenceEvent{
		Sequence: b.sequence, Action: machineapi.SequenceEvent_NOOP,
		Error: &common.Error{Code: common.Code_FATAL, Message: "sequence failed: " + err.Error()},
	}, actor)
	b.fail(b.sequence, err)
	b.sequence = ""
	b.enter(runtime.MachineStageBooting)
	b.node.fleet.reconcile(b.node.cluster())
}

// goDown is the end that all sequences share.
func (b *boot) goDown(actor string, then func()) {
	task := func(name string, action machineapi.TaskEvent_Action) {
		b.events.publish(&machineapi.TaskEvent{Task: name, Action: action}, actor)
	}
	task("stopAllServices", machineapi.TaskEvent_START)
	task("stopAllServices", machineapi.TaskEvent_STOP)
	pause := stopPause
	if b.events.watched() {
		pause = watchedPause
	}
	b.later(pause, then)
}

const (
	// stopPause is how long the machine's services take to stop. Its answers and last events are sent
	// in this time.
	stopPause = 10 * time.Millisecond
	// watchedPause is that time while a client follows the events. talosctl --wait polls again a
	// second after the start of a sequence, and has to find the machine going down, like a real one.
	watchedPause = 1500 * time.Millisecond
)

func (b *boot) rebootSequence(actor string) {
	b.run("reboot", actor, runtime.MachineStageRebooting, func() {
		b.goDown(actor, b.node.restart)
	})
}

// evacuate drains the node as far as possible.
func (b *boot) evacuate() {
	c := b.node.cluster()
	if c == nil || b.joined == "" || !c.online() {
		return
	}
	if err := c.workload.Cordon(b.joined); err != nil {
		b.fail("cordon the node", err)
	}
	c.workload.Drain(b.joined)
}

// accept locks the fleet for a request that requires a running boot.
func (b *boot) accept() (unlock func(), err error) {
	b.node.fleet.mu.Lock()
	if b.node.boot != b {
		b.node.fleet.mu.Unlock()
		return nil, errRestarting
	}
	return b.node.fleet.mu.Unlock, nil
}

// Reboot restarts the machine.
func (a *api) Reboot(context.Context, *machineapi.RebootRequest) (*machineapi.RebootResponse, error) {
	unlock, err := a.boot.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	actor := uuid.NewString()
	a.boot.rebootSequence(actor)
	return &machineapi.RebootResponse{Messages: []*machineapi.Reboot{{ActorId: actor}}}, nil
}

// Shutdown switches the machine off.
func (a *api) Shutdown(_ context.Context, in *machineapi.ShutdownRequest) (*machineapi.ShutdownResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	actor := uuid.NewString()
	b.run("shutdown", actor, runtime.MachineStageShuttingDown, func() {
		if !in.Force {
			b.evacuate()
		}
		b.goDown(actor, b.node.shutDown)
	})
	return &machineapi.ShutdownResponse{Messages: []*machineapi.Shutdown{{ActorId: actor}}}, nil
}

// Rollback boots the release before the last upgrade.
func (a *api) Rollback(context.Context, *machineapi.RollbackRequest) (*machineapi.RollbackResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	n := b.node
	if !n.Installed {
		return nil, status.Error(codes.FailedPrecondition, "system disk not found")
	}
	if n.Previous == nil {
		return nil, errors.New("previous bootloader entry not found")
	}
	next := *n.Previous
	b.run("reboot", "", runtime.MachineStageRebooting, func() {
		n.Next = &next
		n.mustSave()
		b.goDown("", n.restart)
	})
	return &machineapi.RollbackResponse{Messages: []*machineapi.Rollback{{}}}, nil
}

// Reset wipes the machine, or parts of it, and reboots it or switches it off.
func (a *api) Reset(_ context.Context, in *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	partitions, err := b.checkReset(in)
	if err != nil {
		return nil, err
	}
	actor := uuid.NewString()
	b.run("reset", actor, runtime.MachineStageResetting, func() {
		if in.Graceful {
			b.evacuate()
			if err := b.leaveEtcd(); err != nil {
				b.failed(actor, fmt.Errorf("error running phase leave: failed to leave cluster: %w", err))
				return
			}
		}
		b.goDown(actor, func() {
			n := b.node
			n.halt((*endpoint).retire)
			if in.Mode != machineapi.ResetRequest_USER_DISKS {
				n.wipe(partitions)
			}
			if err := n.fleet.reconcileAll(); err != nil {
				n.fleet.log.Error("reset machine", "machine", n.Machine.ID, "error", err)
			}
			if in.Reboot {
				n.start(n.fleet.timing.Reboot)
				return
			}
			n.shutDown()
		})
	})
	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{ActorId: actor}}}, nil
}

// checkReset rejects what cannot be wiped, and returns the partitions to wipe. None means the whole
// system disk.
func (b *boot) checkReset(in *machineapi.ResetRequest) ([]string, error) {
	if len(in.UserDisksToWipe) > 0 && in.Mode == machineapi.ResetRequest_SYSTEM_DISK {
		return nil, errors.New("reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter")
	}
	for _, device := range in.UserDisksToWipe {
		known := slices.ContainsFunc(b.node.Machine.Disks, func(d Disk) bool { return d.Device == device })
		switch {
		case !known:
			return nil, fmt.Errorf("reset user disk failed: device %s wasn't found", device)
		case device == b.node.systemDisk().Device:
			return nil, fmt.Errorf("reset user disk failed: device %s is the system disk", device)
		}
	}
	if len(in.SystemPartitionsToWipe) > 0 && in.Mode == machineapi.ResetRequest_USER_DISKS {
		return nil, errors.New("reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter")
	}
	var partitions []string
	for _, p := range in.SystemPartitionsToWipe {
		if !slices.Contains([]string{"STATE", "EPHEMERAL", "META", "EFI", "BIOS", "BOOT"}, p.Label) {
			return nil, fmt.Errorf("failed to get volume status with label %q: resource VolumeStatuses.block.talos.dev(runtime/%s@undefined) doesn't exist", p.Label, p.Label)
		}
		if p.Wipe {
			partitions = append(partitions, p.Label)
		}
	}
	return partitions, nil
}

// leaveEtcd removes the machine from its etcd cluster and empties its data directory. Without a
// running etcd it does nothing.
func (b *boot) leaveEtcd() error {
	n, c := b.node, b.node.cluster()
	if c == nil || !n.controlPlane() || n.Etcd == nil || b.etcd == etcdStopped {
		return nil
	}
	if m, ok := c.memberOf(n); ok {
		if err := c.Etcd.Remove(m.ID, c.live()); err != nil && !errors.Is(err, etcd.ErrMemberNotFound) {
			return fmt.Errorf("failed to remove member %d: %w", m.ID, err)
		}
	}
	b.etcd, n.Etcd = etcdStopped, nil
	n.mustSave()
	n.fleet.reconcile(c)
	return nil
}

// Upgrade installs another Talos and reboots into it.
func (a *api) Upgrade(_ context.Context, in *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return nil, err
	}
	defer unlock()
	n := b.node
	if !n.Installed {
		return nil, status.Error(codes.FailedPrecondition, "Talos is not installed")
	}
	next, err := releaseOf(in.Image, n.Release)
	if err != nil || in.Image == "" {
		return nil, fmt.Errorf("error validating installer image %q: %w", in.Image, errors.Join(err, errPull))
	}
	if n.controlPlane() && !in.Force && !(n.atLeast(config.TalosVersion1_13) && in.Preserve) {
		if err := b.etcdAllowsUpgrade(); err != nil {
			return nil, fmt.Errorf("error validating etcd for upgrade: %w", err)
		}
	}
	actor := uuid.NewString()
	b.run("upgrade", actor, runtime.MachineStageUpgrading, func() {
		b.evacuate()
		b.later(n.fleet.timing.Install, func() {
			if err := upgradeable(n.Release, next, n.config); err != nil {
				b.fail("upgrade", err) // the machine reboots unchanged
			} else {
				n.Next = &next
				n.mustSave()
			}
			b.enter(runtime.MachineStageRebooting)
			b.goDown(actor, n.restart)
		})
	})
	return &machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received", ActorId: actor}}}, nil
}

var errPull = errors.New("failed to resolve reference: not found")

// etcdAllowsUpgrade rejects an upgrade that would cost the cluster its quorum.
func (b *boot) etcdAllowsUpgrade() error {
	c := b.node.cluster()
	if c == nil || c.Etcd == nil || !c.quorum() {
		return etcd.ErrNoLeader
	}
	members, live := c.Etcd.Members, c.live()
	if len(members) == 2 {
		return fmt.Errorf("etcd member count(%d) is insufficient to maintain quorum if upgrade commences", len(members))
	}
	for _, m := range members {
		switch {
		case !m.Started():
			return fmt.Errorf("etcd member %016x is not started, all members must be running to perform an upgrade", m.ID)
		case !live[m.ID]:
			return fmt.Errorf("etcd member %016x is not healthy; all members must be healthy to perform an upgrade: context deadline exceeded", m.ID)
		}
	}
	return nil
}
