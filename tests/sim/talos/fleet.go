// Package talos simulates machines that run Talos Linux. They speak its wire protocols: talosctl and
// the production Talos client work with them unchanged.
//
// A Fleet is a set of machines. The simulator of the hypervisor powers them on and off. Everything
// else happens through their own APIs on their own addresses: apid on :50000, trustd on :50001 and,
// once etcd runs, Kubernetes on :6443 of a control plane node.
//
// All state is on disk before an answer is sent, so that a killed process and a new Open lose nothing.
// An idle machine has no timer, and only goroutines that wait for connections.
package talos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vitistack/stack/tests/sim/faults"
)

// The ports of a node. The port of Kubernetes is configurable.
const (
	apidPort   = 50000
	trustdPort = 50001
)

// ErrNoMachine is returned for an ID that was never powered on, or is destroyed.
var ErrNoMachine = errors.New("no such machine")

// Fleet is a set of machines. It is safe for concurrent use.
type Fleet struct {
	plan   *faults.Plan
	log    *slog.Logger
	timing Timing
	disk   disk
	// ended is called when a machine switches itself off.
	ended func(id string)

	mu       sync.Mutex
	nodes    map[string]*node
	clusters map[string]*cluster
	closed   bool
	// changed is closed and replaced at each change, for goroutines that wait for a state.
	changed chan struct{}
	done    chan struct{}
	// touched are the clusters whose objects have changed, for the refresher.
	touched *touched
	// work counts the goroutines that Close waits for.
	work sync.WaitGroup
}

// Option is an option of a fleet.
type Option func(*Fleet)

// WithTiming sets the durations of the machines' steps.
func WithTiming(t Timing) Option { return func(f *Fleet) { f.timing = t } }

// SetTiming sets the durations of the steps that begin afterwards, and of the Nodes of clusters that begin afterwards.
func (f *Fleet) SetTiming(t Timing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.timing = t.withDefaults()
}

// WithShutdownObserver calls observe in a new goroutine when a machine has switched itself off, as it
// does on a shutdown request.
func WithShutdownObserver(observe func(id string)) Option {
	return func(f *Fleet) { f.ended = observe }
}

// Open reads a fleet from dir, and creates dir if necessary. No machine is powered on. The caller
// powers on the machines that should run.
//
// The plan may be nil. It has these operations and errors:
//
//	operation                   error
//	MachineService/Bootstrap    a gRPC code by name, "reset" to drop the
//	State/List and so on        connection, or any text, which is Unknown
//	trustd                      likewise
//	workload                    an HTTP status, "reset", or any text, which is 500
//	tls                         "hang" to never answer, any text to hang up
func Open(dir string, plan *faults.Plan, log *slog.Logger, options ...Option) (*Fleet, error) {
	if plan == nil {
		plan = &faults.Plan{}
	}
	disk, err := openDisk(dir)
	if err != nil {
		return nil, fmt.Errorf("open the state of the Talos machines: %w", err)
	}
	f := &Fleet{
		plan: plan, log: log, disk: disk,
		nodes: map[string]*node{}, clusters: map[string]*cluster{},
		changed: make(chan struct{}), done: make(chan struct{}), touched: newTouched(),
	}
	for _, option := range options {
		option(f)
	}
	f.timing = f.timing.withDefaults()
	if err := f.restore(); err != nil {
		return nil, fmt.Errorf("open the state of the Talos machines: %w", err)
	}
	f.work.Add(1)
	go f.refresher()
	return f, nil
}

func (f *Fleet) restore() error {
	clusters, err := load[clusterRecord](f.disk.clusters())
	if err != nil {
		return err
	}
	for _, r := range clusters {
		if err := f.openCluster(r); err != nil {
			return err
		}
	}
	records, err := load[record](f.disk.machines())
	if err != nil {
		return err
	}
	for _, r := range records {
		n := &node{fleet: f, record: r}
		if err := n.parse(); err != nil {
			return fmt.Errorf("machine %s: %w", r.Machine.ID, err)
		}
		f.nodes[r.Machine.ID] = n
	}
	for _, c := range f.clusters {
		c.repair()
	}
	return nil
}

// Close cuts the power of every machine and keeps all state.
func (f *Fleet) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	for _, n := range f.nodes {
		n.unplug()
	}
	var errs []error
	for _, c := range f.clusters {
		errs = append(errs, c.workload.Close())
	}
	close(f.done)
	f.mu.Unlock()
	f.work.Wait()
	return errors.Join(errs...)
}

// PowerOn starts a machine, or updates the hardware or address of a running one. A second call with
// the same machine does nothing. It returns an error if the machine's address cannot be listened on.
func (f *Fleet) PowerOn(ctx context.Context, m Machine) error {
	if err := errors.Join(ctx.Err(), m.validate()); err != nil {
		return fmt.Errorf("power on machine %s: %w", m.ID, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("power on machine %s: the fleet is closed", m.ID)
	}
	n, known := f.nodes[m.ID]
	if !known {
		n = &node{fleet: f, record: record{Installed: m.Preinstalled}}
	}
	if err := n.plug(m); err != nil {
		return fmt.Errorf("power on machine %s: %w", m.ID, err)
	}
	f.nodes[m.ID] = n
	return nil
}

// ConfiguredAddress returns the static address and the gateway of a machine that has been on, by its configuration on the disk.
// ok is false for one without such a configuration: its platform or DHCP gives it an address.
func (f *Fleet) ConfiguredAddress(id string) (address netip.Prefix, gateway netip.Addr, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, known := f.nodes[id]
	if !known || n.config == nil || n.Volatile {
		return netip.Prefix{}, netip.Addr{}, false
	}
	_, static, _ := linkConfig(n.Machine, n.config)
	if len(static) == 0 {
		return netip.Prefix{}, netip.Addr{}, false
	}
	return static[0], n.Machine.Gateway, true
}

// PowerOff cuts a machine's power. What it has written to its disks stays. A machine that is off or
// unknown does not change.
func (f *Fleet) PowerOff(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.nodes[id]
	if !ok {
		return fmt.Errorf("power off machine %s: %w", id, ErrNoMachine)
	}
	return n.powerOff()
}

// Crash stops the nodes at the addresses, as by a kernel panic: nothing listens, and the machine stays
// on. It restarts nodes that crashed before and are not named.
func (f *Fleet) Crash(addresses []netip.Addr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		named := slices.Contains(addresses, n.Machine.Address.Addr())
		switch {
		case named && n.on && !n.crashed:
			if err := n.loseVolatile(); err != nil {
				return fmt.Errorf("crash machine %s: %w", n.Machine.ID, err)
			}
			n.halt((*endpoint).close)
		case !named && n.on && n.crashed:
			n.start(f.timing.Reboot)
		}
		n.crashed = named && n.on
	}
	return nil
}

// Reboot resets a running machine.
func (f *Fleet) Reboot(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.nodes[id]
	if !ok {
		return fmt.Errorf("reboot machine %s: %w", id, ErrNoMachine)
	}
	if !n.on {
		return fmt.Errorf("reboot machine %s: it is off", id)
	}
	if err := n.loseVolatile(); err != nil {
		return fmt.Errorf("reboot machine %s: %w", id, err)
	}
	n.halt((*endpoint).close)
	n.start(f.timing.Reboot)
	return nil
}

// Destroy removes a machine with its disks. An unknown machine is no error.
func (f *Fleet) Destroy(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.nodes[id]
	if !ok {
		return nil
	}
	n.unplug()
	delete(f.nodes, id)
	if err := remove(f.disk.machine(id)); err != nil {
		return fmt.Errorf("destroy machine %s: %w", id, err)
	}
	return f.reconcileAll()
}

// probe returns nil if an address can be listened on.
func probe(addr netip.Addr) error {
	l, err := listenOn(addr, apidPort)
	if err != nil {
		return fmt.Errorf("listen on the machine's address: %w", err)
	}
	return l.Close()
}

// announce wakes every goroutine that waits for a state. Callers hold mu.
func (f *Fleet) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// refresher updates machines after changes in their Kubernetes clusters.
func (f *Fleet) refresher() {
	defer f.work.Done()
	for {
		select {
		case <-f.done:
			return
		case <-f.touched.poke:
		}
		f.mu.Lock()
		for _, key := range f.touched.take() {
			if c, ok := f.clusters[key]; ok && !f.closed {
				c.publish()
			}
		}
		f.announce()
		f.mu.Unlock()
	}
}

// touched collects keys under a lock of its own, so that a cluster can report a change while its
// caller holds another lock.
type touched struct {
	mu   sync.Mutex
	keys map[string]bool
	poke chan struct{}
}

func newTouched() *touched {
	return &touched{keys: map[string]bool{}, poke: make(chan struct{}, 1)}
}

func (t *touched) add(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys[key] = true
	select {
	case t.poke <- struct{}{}:
	default:
	}
}

func (t *touched) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := slices.Collect(maps.Keys(t.keys))
	clear(t.keys)
	return keys
}

// later runs work after a delay, with mu held, unless this boot has ended.
func (b *boot) later(d time.Duration, work func()) *time.Timer {
	f := b.node.fleet
	t := time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if b.node.boot == b {
			work()
		}
	})
	b.timers = append(b.timers, t)
	return t
}
