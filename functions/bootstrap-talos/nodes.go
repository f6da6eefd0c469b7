package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/kube"
)

// atOnce is how many nodes a delivery talks to at the same time.
const atOnce = 8

// configureMachine brings one machine closer to a node with its configuration. A cluster
// that is not ready for that does it later itself.
func (f *function) configureMachine(ctx context.Context, name string, m *v1alpha1.Machine) error {
	kc := &v1alpha1.KubernetesCluster{}
	if err := f.kube.Get(ctx, m.Namespace, name, kc); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	c := &cluster{KubernetesCluster: kc, states: map[string]nodeState{}, until: f.now().Add(longPatience)}
	if kc.DeletionTimestamp != nil || kc.Spec.Paused {
		return nil
	}
	ready, err := f.prepare(ctx, c)
	if errors.As(secretsFault(err), new(fault)) {
		return kube.OnConflict(func() error { return f.settle(ctx, m.Namespace, name, glance{thorough: true}) })
	}
	if err != nil || !ready {
		return err
	}
	members := slices.DeleteFunc(c.unconfigured(), func(p member) bool { return p.name != m.Name })
	if len(members) == 0 {
		return kube.OnConflict(func() error { return f.settle(ctx, m.Namespace, name, glance{thorough: true}) })
	}
	configs, err := f.renderAll(ctx, c, c.unprovided(members))
	if err == nil {
		err = poll(ctx, c.until, func(ctx context.Context) error { return f.configureOnce(ctx, c, members, configs) })
	}
	if errors.As(secretsFault(err), new(fault)) {
		return kube.OnConflict(func() error { return f.settle(ctx, m.Namespace, name, glance{thorough: true}) })
	}
	if w := (waits{}); errors.As(err, &w) && !w.silent {
		return nil // the event of the Machine tells
	}
	return err
}

// prepare learns what the configuration of a node needs, and reports whether it is
// all there.
func (f *function) prepare(ctx context.Context, c *cluster) (bool, error) {
	var err error
	if err := f.readMachines(ctx, c); err != nil {
		return false, err
	}
	if err = f.acceptSpec(c); err == nil {
		c.plan, err = makePlan(c.wanted(), c.machines, f.talos)
	}
	if err != nil {
		return false, nil // the cluster's own event tells
	}
	c.network = c.Spec.NetworkNamespaceName
	if c.keys, err = f.readKeys(ctx, c.KubernetesCluster); err != nil || c.keys == nil {
		return false, err
	}
	if c.access, err = c.keys.access(); err != nil {
		return false, err
	}
	err = f.ensureEndpoint(ctx, c)
	if errors.As(err, new(waits)) || errors.As(err, new(fault)) {
		return false, nil
	}
	return err == nil, err
}

// configureOnce does the next step for each member that has not been seen with its
// configuration, some at the same time.
func (f *function) configureOnce(ctx context.Context, c *cluster, members []member, configs map[string][]byte) error {
	var mu sync.Mutex
	var problems []error
	var group errgroup.Group
	group.SetLimit(atOnce)
	left := slices.DeleteFunc(slices.Clone(members), func(m member) bool { return c.states[m.name] == stateOurs })
	missing := maps.Clone(configs)
	for _, m := range left {
		group.Go(func() error {
			machine := c.machines[m.name]
			state, err := f.configure(ctx, c, machine, missing[m.name])
			mu.Lock()
			defer mu.Unlock()
			if provided(machine) {
				delete(configs, m.name) // once: another delivery may have taken it back by the next look
			}
			if state != "" {
				c.states[m.name] = state
			}
			if err != nil {
				problems = append(problems, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	return worst(problems)
}

// worst is the error that most needs somebody's attention: a fault before anything
// that passes by itself.
func worst(problems []error) error {
	for _, err := range problems {
		if errors.As(err, new(fault)) {
			return err
		}
	}
	if len(problems) > 0 {
		return problems[0]
	}
	return nil
}

// renderAll writes the configurations of members, and saves them, without secrets,
// before any is provided.
func (f *function) renderAll(ctx context.Context, c *cluster, members []member) (map[string][]byte, error) {
	if len(members) == 0 {
		return nil, nil
	}
	configs, files := map[string][]byte{}, map[string][]byte{}
	c.macs = map[string][]string{}
	common := f.clusterConfig(c)
	for _, m := range members {
		nc := &v1alpha1.NetworkConfiguration{}
		if err := f.kube.Get(ctx, c.Namespace, m.name, nc); err != nil && !kube.NotFound(err) {
			return nil, err
		}
		c.macs[m.name] = macsOf(nc)
		patches, err := f.loadPatches(ctx, c, m)
		if err != nil {
			return nil, err
		}
		p, err := render(dialect(common, c.machines[m.name]), nodeConfig{
			name: m.name, role: m.role, version: joining(m.version, c.Status.Version), links: linksOf(nc),
			labels: m.properties.Labels, taints: m.properties.Taints, patches: patches,
		})
		if errors.As(err, new(fault)) {
			return nil, err
		}
		if err != nil {
			return nil, fault{"InvalidConfiguration", err.Error()}
		}
		if configs[m.name], err = encode(p); err != nil {
			return nil, fmt.Errorf("encode configuration of %s: %w", m.name, err)
		}
		if files[m.name+".talos.yaml"], err = encodeRedacted(p); err != nil {
			return nil, fmt.Errorf("encode configuration of %s: %w", m.name, err)
		}
	}
	return configs, f.results.save(ctx, c.KubernetesCluster, files)
}

func (f *function) clusterConfig(c *cluster) clusterConfig {
	common := clusterConfig{
		name: c.Name, endpoint: c.Status.Endpoint, talos: c.plan.talos, contract: c.plan.contract,
		disk: "/dev/vda", installer: f.images.installer(c.KubernetesCluster, c.plan.talos), keys: c.keys, vip: c.vip, port: c.plan.localPort(),
	}
	if c.Spec.Networking != nil {
		common.networking = *c.Spec.Networking
	}
	if c.Spec.Talos != nil && c.Spec.Talos.InstallDisk != "" {
		common.disk = c.Spec.Talos.InstallDisk
	}
	if c.vip.IsValid() {
		common.sans = append(common.sans, c.vip.String())
	}
	if u, err := url.Parse(c.endpoint); err == nil && c.endpoint != c.Status.Endpoint && u.Hostname() != c.vip.String() {
		common.sans = append(common.sans, u.Hostname()) // it is asked before it moves
	}
	return common
}

// dialect is the configuration in the dialect of the Talos version that a machine
// was made with, which newer versions understand and keep.
func dialect(common clusterConfig, m *v1alpha1.Machine) clusterConfig {
	if m == nil || m.Spec.OS == nil {
		return common
	}
	if contract, err := config.ParseContractFromVersion("v" + m.Spec.OS.Version); err == nil {
		common.contract = contract
	}
	return common
}

// skewed is what people are told of a node whose certificate is not valid now.
func skewed(m *v1alpha1.Machine) fault {
	return fault{"ClockSkew", fmt.Sprintf(
		"node %s at %s is of this cluster, but its certificate is not valid at this time: let the node, or its hypervisor, reach a time server", m.Name, addressOf(m))}
}

// lookAtNodes keeps the credentials for people, and lists the nodes that the
// cluster's own API knows.
func (f *function) lookAtNodes(ctx context.Context, c *cluster) error {
	if c.kubeconfig == nil {
		if err := f.keepCredentials(ctx, c); err != nil {
			return err
		}
	}
	if c.workload == nil {
		w, err := openWorkload(c.kubeconfig, c.plan.localPort(), slices.Sorted(maps.Values(c.controlPlanes()))...)
		if err != nil {
			return err
		}
		c.workload = w
	}
	nodes, err := c.workload.nodes(ctx)
	if err != nil {
		c.reachable = false
		var denied *outbound.Denied
		if errors.As(err, &denied) {
			return fault{"EndpointNotAllowed", denied.Error()}
		}
		return waits{reason: "WaitingForAPI", message: "waits for the workload API at " + c.Status.Endpoint, silent: true}
	}
	c.nodes, c.reachable = c.current(nodes), true
	return nil
}

// current leaves out the Nodes of machines that have no configuration yet. Those are
// what earlier machines of the same names have left, and say that they are Ready
// until the cluster misses their kubelets.
func (c *cluster) current(nodes []workloadNode) []workloadNode {
	return slices.DeleteFunc(nodes, func(n workloadNode) bool {
		m := c.machines[n.name]
		return m != nil && !installed(m)
	})
}

// missingNodes says which machines are no Ready nodes yet. Machines that are not
// up tell so themselves, nodes tell nobody.
func (f *function) missingNodes(c *cluster) error {
	silent := false
	var late []string
	for _, m := range c.plan.members {
		ready := slices.ContainsFunc(c.nodes, func(n workloadNode) bool { return n.name == m.name && n.ready })
		if ready || c.upgrading(m.name) {
			continue
		}
		late = append(late, m.name)
		silent = silent || running(c.machines[m.name])
	}
	if len(late) == 0 {
		return nil
	}
	if !silent {
		return f.waitForMachines(c)
	}
	return waits{reason: "WaitingForNodes", message: fmt.Sprintf("waits for %s to be Ready, first of all %s", count(len(late), "node"), late[0]), silent: true}
}

// poll calls look until it waits for nothing more, or for something that tells
// when it is there, or until the time is over.
func poll(ctx context.Context, until time.Time, look func(context.Context) error) error {
	pause := firstPause
	for {
		err := look(ctx)
		var w waits
		if !errors.As(err, &w) || !w.silent || time.Now().Add(pause).After(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

// Pauses between two looks at something that tells nobody when it is there.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = 500 * time.Millisecond
)
