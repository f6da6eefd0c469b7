package talos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// etcdState is the state of a control plane node's etcd in this boot.
type etcdState int

const (
	etcdDown     etcdState = iota // not started yet
	etcdWaiting                   // for a cluster to join
	etcdStarting                  // a member that does not run yet
	etcdUp                        // running
	etcdStopped                   // has left the cluster, or was removed from it
)

// boot is one run of a machine's operating system. Callers hold Fleet.mu.
type boot struct {
	node *node
	// ctx ends with the boot.
	ctx    context.Context
	cancel context.CancelFunc
	// id is the kernel's boot ID.
	id     string
	began  time.Time
	stage  runtime.MachineStage
	timers []*time.Timer
	events *eventLog
	kmsg   *kmsg
	cosi   *resources

	// network has the machine's name and addresses.
	network wiring
	// identity has the machine's certificates, or is nil while there are none.
	identity atomic.Pointer[identity]
	// apid, trustd and kubernetes are the endpoints that listen.
	apid, trustd, kubernetes *endpoint
	// peers are the connections to other nodes that forward requests.
	peers *peers

	// services is whether the container runtime is up.
	services bool
	etcd     etcdState
	// pulling ends when etcd's image is pulled for a bootstrap. Until then only this boot remembers
	// the request. It is nil without a request.
	pulling *time.Timer
	// learned is whether a joining member has caught up.
	learned bool
	// kubeletSince is since when the kubelet's image is not found, or the zero time. kubeletRuns is whether a kubelet
	// has run since the boot, which has started the static pods.
	kubeletSince time.Time
	kubeletRuns  bool
	// joined is the Node name of the kubelet, and agent is how the kubelet described itself.
	joined string
	agent  workload.Kubelet
	// served is the version of the API server.
	served string
	// created is the configuration whose inline manifests are created.
	created string
	// rendered is what the static pods are rendered from, and renderings counts its changes. running is
	// the rendering that the kubelet runs.
	rendered            string
	renderings, running int
	// restarting is whether the API server has ended and starts again.
	restarting bool
	// trusted are the authorities that the kubelet was started with.
	trusted string
	// sequence is the running sequence, if any. installing is whether an installer runs at the same
	// time.
	sequence   string
	installing bool
	// vips are the cluster's virtual addresses on this node.
	vips []netip.Addr
	// undoTry reverts a configuration in mode try.
	undoTry *time.Timer
	// last is the last published machine status, and lastServices are the last published services.
	last         machineStatus
	lastServices map[string]service
}

func newBoot(n *node) *boot {
	ctx, cancel := context.WithCancel(context.Background())
	b := &boot{
		node: n, ctx: ctx, cancel: cancel,
		id: uuid.NewString(), began: time.Now(),
		events: newEventLog(), kmsg: &kmsg{}, peers: newPeers(), lastServices: map[string]service{},
		network: wiringOf(n.Machine, n.config),
	}
	b.printf("Linux version %s-talos", kernelVersion)
	b.printf("[talos] talos %s, boot ID %s, platform %s", n.Release.Version, b.id, n.Machine.Kind)
	return b
}

// end ends the boot, and calls down for what it has started.
func (b *boot) end(down func(*endpoint)) {
	for _, t := range b.timers {
		t.Stop()
	}
	if b.undoTry != nil {
		b.undoTry.Stop()
	}
	for _, e := range []*endpoint{b.apid, b.trustd, b.kubernetes} {
		down(e)
	}
	b.apid, b.trustd, b.kubernetes = nil, nil, nil
	b.events.close()
	b.peers.close()
	b.cancel()
}

// enter changes the stage and publishes it.
func (b *boot) enter(stage runtime.MachineStage) {
	b.stage = stage
	b.printf("[talos] machine is now %s", stage)
	b.announceStatus()
	b.refresh()
	b.node.fleet.announce()
}

// maintain waits for a configuration on the insecure API.
func (b *boot) maintain() {
	id, err := maintenanceIdentity(b.network)
	if err != nil {
		b.fail("make the maintenance certificate", err)
		return
	}
	b.identity.Store(id)
	b.listenAPID()
	b.enter(runtime.MachineStageMaintenance)
	b.printf("[talos] this machine is reachable at: %s", b.network.address.Addr())
	b.printf("[talos] upload configuration using talosctl: talosctl apply-config --insecure --nodes %s --file <config.yaml>", b.network.address.Addr())
}

// leaveMaintenance continues with the accepted configuration.
func (b *boot) leaveMaintenance() {
	b.apid.retire()
	b.apid = nil
	b.identity.Store(nil)
	b.network = wiringOf(b.node.Machine, b.node.config)
	if b.node.needsInstall() {
		b.install()
		return
	}
	b.node.Volatile = false
	b.node.mustSave()
	b.configure()
}

// install writes Talos to the system disk and reboots into it. From 1.13 on the API uses the
// configured identity during the installation. If the installation fails, the machine reboots without
// the configuration.
func (b *boot) install() {
	b.enter(runtime.MachineStageInstalling)
	if b.node.atLeast(config.TalosVersion1_13) {
		b.identify()
	}
	n := b.node
	image := n.config.Machine().Install().Image()
	b.printf("[talos] installing Talos to disk %s from image %q", n.systemDisk().Device, image)
	b.later(n.fleet.timing.Install, func() {
		next, err := releaseOf(image, n.Release)
		if err = errors.Join(err, n.checkInstallDisk()); err != nil {
			b.fail("install", err)
			if err := n.loseVolatile(); err != nil {
				b.fail("forget the configuration", err)
			}
		} else {
			n.Release, n.Installed, n.Volatile = next, true, false
			n.KernelArguments = n.config.Machine().Install().ExtraKernelArgs()
			n.mustSave()
			b.printf("[talos] install successful")
		}
		b.enter(runtime.MachineStageRebooting)
		n.restart()
	})
}

// checkInstallDisk returns an error if the machine lacks the install disk.
func (n *node) checkInstallDisk() error {
	want := n.config.Machine().Install().Disk()
	if want == "" || len(n.Machine.Disks) == 0 ||
		slices.ContainsFunc(n.Machine.Disks, func(d Disk) bool { return d.Device == want }) {
		return nil
	}
	return fmt.Errorf("disk %s does not exist", want)
}

// configure boots with a configuration. Nothing listens without the volume STATE, and no service that needs the
// volume EPHEMERAL starts without it.
func (b *boot) configure() {
	b.enter(runtime.MachineStageBooting)
	if err := b.node.openSystemVolumes(constants.StatePartitionLabel); err != nil {
		b.fail("mount", err)
		return
	}
	b.identify()
	if err := b.node.openSystemVolumes(constants.EphemeralPartitionLabel); err != nil {
		b.fail("mount", err)
		return
	}
	b.node.provisionUserVolumes()
	timing := b.node.fleet.timing
	b.later(timing.vary(timing.Services), func() {
		b.services = true
		b.node.fleet.reconcile(b.node.cluster())
	})
}

// fail logs what a real machine shows only on its console.
func (b *boot) fail(doing string, err error) {
	b.printf("[talos] failed to %s: %v", doing, err)
	b.node.fleet.log.Warn("simulated Talos machine", "machine", b.node.Machine.ID, "failed", doing, "error", err)
}

// relisten follows a change of the address, the hostname or the certificates.
func (b *boot) relisten() {
	old := b.network
	b.network = wiringOf(b.node.Machine, b.node.config)
	if b.node.config == nil {
		if old.address != b.network.address {
			b.apid.close()
			b.apid = nil
			b.maintain()
		}
		return
	}
	if old.address != b.network.address {
		for _, e := range []*endpoint{b.apid, b.trustd, b.kubernetes} {
			e.close()
		}
		b.apid, b.trustd, b.kubernetes, b.vips = nil, nil, nil, nil
	}
	b.keepVIPs(b.network.vips)
	b.identify()
	b.node.fleet.reconcile(b.node.cluster())
}
