package talos

import (
	"bytes"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
)

// node is a machine with its record, and with its present boot while it has power. Callers hold
// Fleet.mu.
type node struct {
	fleet *Fleet
	record
	// config is the parsed active configuration, or nil. active is its text, and key the key of its
	// cluster.
	config config.Provider
	active []byte
	key    string
	// clusterSection is the section "cluster" of the configuration of a control plane, from which Talos
	// renders the static pods.
	clusterSection string
	on             bool
	// crashed is whether the operating system of a machine that is on has crashed.
	crashed bool
	// boot is nil while the machine is off and between two boots.
	boot *boot
	// restarting starts the next boot.
	restarting *time.Timer
}

// version is the Talos version that the machine runs.
func (n *node) version() *config.VersionContract {
	v, err := parseVersion(n.Release.Version)
	if err != nil { // an upgrade to such a version is rejected
		return newest
	}
	return v
}

func (n *node) atLeast(v *config.VersionContract) bool { return !v.Greater(n.version()) }

func (n *node) controlPlane() bool {
	return n.config != nil && n.config.Machine().Type().IsControlPlane()
}

func (n *node) role() machine.Type {
	if n.config == nil {
		return machine.TypeUnknown
	}
	return n.config.Machine().Type()
}

// parse makes the recorded configuration the active one, and the machine a member of its cluster.
func (n *node) parse() error {
	n.config = nil
	if n.Config == nil {
		return nil
	}
	cfg, err := readConfig(n.Config)
	if err != nil {
		return fmt.Errorf("read the persisted configuration: %w", err)
	}
	key := clusterKey(cfg)
	if n.fleet.clusters[key] == nil {
		if err := n.fleet.openCluster(clusterRecord{Key: key}); err != nil {
			return err
		}
	}
	n.config, n.key, n.active, n.clusterSection = cfg, key, n.Config, ""
	if raw := cfg.RawV1Alpha1(); raw != nil && n.controlPlane() {
		section, err := encoder.NewEncoder(raw.ClusterConfig, encoder.WithComments(encoder.CommentsDisabled)).Encode()
		if err != nil {
			return fmt.Errorf("encode the section cluster of the configuration: %w", err)
		}
		n.clusterSection = string(section)
	}
	return nil
}

// persisted returns the configuration on the disk. It differs from the active one during mode try, and
// while another one is staged.
func (n *node) persisted() config.Provider {
	data := n.Config
	if n.Staged != nil {
		data = n.Staged
	}
	if bytes.Equal(data, n.active) {
		return n.config
	}
	cfg, err := readConfig(data)
	if err != nil {
		n.fleet.log.Error("read the persisted configuration", "machine", n.Machine.ID, "error", err)
		return n.config
	}
	return cfg
}

func (n *node) save() error {
	return n.fleet.disk.save(n.fleet.disk.machine(n.Machine.ID), &n.record)
}

// mustSave saves a change without a caller that could return the error. It reports a failure, because
// the machine would lose the change.
func (n *node) mustSave() {
	if err := n.save(); err != nil {
		n.fleet.log.Error("save machine", "machine", n.Machine.ID, "error", err)
	}
}

// plug sets the hardware of the machine and switches it on.
func (n *node) plug(m Machine) error {
	moved, set := n.on && n.Machine.Address != m.Address, n.Machine.Skew != m.Skew
	if !n.on || moved {
		if err := probe(m.Address.Addr()); err != nil {
			return err
		}
	}
	n.Machine = m
	if !n.Installed || n.Release.Version == "" {
		n.Release = release{Version: m.Version}
	}
	if err := n.save(); err != nil {
		return err
	}
	switch {
	case !n.on:
		n.on = true
		n.start(0)
	case (moved || set) && n.boot != nil:
		n.boot.relisten()
	}
	return nil
}

// start begins a boot after a pause without listeners.
func (n *node) start(pause time.Duration) {
	f := n.fleet
	n.restarting = time.AfterFunc(pause+f.timing.vary(f.timing.Boot), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n.on && n.boot == nil && !f.closed && f.nodes[n.Machine.ID] == n {
			n.bringUp()
		}
	})
}

// bringUp starts the operating system: staged changes take effect, and the machine continues with the
// content of its disks.
func (n *node) bringUp() {
	if n.Next != nil {
		n.Previous, n.Release, n.Next = &release{n.Release.Version, n.Release.Image}, *n.Next, nil
	}
	if n.Staged != nil {
		n.Config, n.Staged = n.Staged, nil
		if err := n.parse(); err != nil {
			n.fleet.log.Error("boot with the staged configuration", "machine", n.Machine.ID, "error", err)
		}
	}
	n.mustSave()
	b := newBoot(n)
	n.boot = b
	n.fleet.work.Go(b.followSink)
	switch {
	case n.config == nil && len(n.Machine.Seed) > 0:
		b.readSeed()
	case n.config == nil:
		b.maintain()
	case n.needsInstall():
		b.install()
	default:
		b.configure()
	}
}

// needsInstall reports whether a configured machine has to install Talos to a disk first.
func (n *node) needsInstall() bool { return !n.Installed && !n.Machine.mode().InContainer() }

// restart ends the present boot and begins another one.
func (n *node) restart() {
	n.halt((*endpoint).retire)
	n.start(n.fleet.timing.Reboot)
}

// halt ends the present boot: nothing listens any more, and down ends the connections.
func (n *node) halt(down func(*endpoint)) {
	if n.restarting != nil {
		n.restarting.Stop()
	}
	b := n.boot
	n.boot = nil
	if b == nil {
		return
	}
	b.end(down)
	if !n.fleet.closed {
		n.fleet.departed(n, b)
	}
}

// unplug cuts the power.
func (n *node) unplug() {
	n.on, n.crashed = false, false
	n.halt((*endpoint).close)
}

func (n *node) powerOff() error {
	if !n.on {
		return nil
	}
	n.unplug()
	if err := n.loseVolatile(); err != nil {
		return fmt.Errorf("power off machine %s: %w", n.Machine.ID, err)
	}
	return nil
}

// loseVolatile removes what had not reached a disk when the power was cut.
func (n *node) loseVolatile() error {
	if !n.Volatile {
		return nil
	}
	n.Config, n.Volatile, n.config = nil, false, nil
	return n.save()
}

// shutDown switches the machine off from the inside.
func (n *node) shutDown() {
	n.on = false
	n.halt((*endpoint).retire)
	if observe := n.fleet.ended; observe != nil {
		go observe(n.Machine.ID)
	}
}

// wipe erases the system disk, or only the named partitions of it.
func (n *node) wipe(partitions []string) {
	if len(partitions) == 0 {
		n.record = record{Machine: n.Machine, Installed: n.Machine.Preinstalled, Release: release{Version: n.Machine.Version}}
		n.config = nil
		n.mustSave()
		return
	}
	for _, p := range partitions {
		switch p {
		case "STATE":
			n.Config, n.Staged, n.config = nil, nil, nil
			delete(n.Volumes, p)
		case "EPHEMERAL":
			n.Etcd, n.Recovery, n.Images, n.KubeletCA = nil, nil, nil, nil
			delete(n.Volumes, p)
		}
	}
	n.mustSave()
}
