package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

// cluster is a KubernetesCluster, with what one delivery has learnt about it.
type cluster struct {
	*v1alpha1.KubernetesCluster
	// before is the object as the API server has it.
	before *v1alpha1.KubernetesCluster
	// until is how long the delivery may wait for nodes, which tell nobody when they
	// are ready, and patient whether it waits at all.
	until   time.Time
	patient bool
	// event is the one that is handled.
	event string
	plan  plan
	// network is the name of its NetworkNamespace, which gives out addresses when it is
	// ready.
	network      string
	networkReady bool
	// unmade are members whose machines cannot be made as the spec is.
	unmade map[string]bool
	// machines are those of the cluster that exist, by name, also those that leave.
	machines map[string]*v1alpha1.Machine
	keys     *keys
	access   *access
	// vip is the virtual address of the control planes, or the zero value, and
	// endpoint where the workload API should be reached.
	vip      netip.Addr
	endpoint string
	states   map[string]nodeState
	// macs are the addresses of the interfaces of machines that get a configuration.
	macs map[string][]string
	// workload is the connection to the cluster's own API, once there is one, and
	// nodes what that has listed.
	workload *workload
	nodes    []workloadNode
	// etcd counts its members, once they all vote and answer.
	etcd string
	// patches are those that have been read, by their ConfigMaps, and config is what
	// people are told about the configuration of nodes.
	patches map[v1alpha1.ObjectName][]patch
	config  configReport
	// authorities is what people are told about the rotation of the authorities.
	authorities configReport
	// kubeconfig is the administrator's, once a node has handed it out.
	kubeconfig []byte
	// faults are users' mistakes that do not stop the delivery, in the order in which they
	// were found.
	faults []specFault
	// held is what keeps it from being as its spec says until somebody approves, and
	// allowed its spec without what is invalid or has not been approved.
	held    error
	allowed *v1alpha1.KubernetesCluster
	// versions is what people are told about its versions, and gate why no other node
	// may be upgraded now.
	versions versionReport
	gate     string
	// created, credentials, bootstrapped and reachable are how far it has come.
	created, credentials, bootstrapped, reachable bool
	// bootstrapSent is whether this delivery has sent a bootstrap request.
	bootstrapSent bool
	// unanswered is whether its API has not answered, or cannot even be asked.
	unanswered bool
}

// waits says what a cluster waits for. Silent is whether it tells nobody when it is
// there, so that somebody has to look again.
type waits struct {
	reason, message string
	silent          bool
}

func (w waits) Error() string { return w.reason + ": " + w.message }

// installed tells whether the node of a machine has its configuration on its disk.
func installed(m *v1alpha1.Machine) bool { return m.Installed() }

// running tells whether a machine is up and has an address.
func running(m *v1alpha1.Machine) bool {
	return addressed(m) && m.Status.Phase == v1alpha1.MachineRunning
}

// addressed tells whether a machine has its addresses, which it has before it is made.
func addressed(m *v1alpha1.Machine) bool {
	return m != nil && len(m.Status.IPAddresses) > 0 && m.DeletionTimestamp == nil
}

// addressOf is the first address of a machine, at which its node is reached.
func addressOf(m *v1alpha1.Machine) string { return m.Status.IPAddresses[0] }

// advance brings a cluster as far as it goes: its machines, its keys, the
// configuration of each node that is up, etcd, and the kubeconfig. It returns a
// fault or waits where it goes no further.
func (f *function) advance(ctx context.Context, c *cluster) error {
	if err := f.readPlan(ctx, c); err != nil {
		return err
	}
	if err := f.prepareMachines(ctx, c); err != nil {
		return err
	}
	members, configs, err := f.renderUnprovided(ctx, c)
	if err != nil {
		return err
	}
	late := poll(ctx, c.until, func(ctx context.Context) error {
		return f.admit(ctx, c, f.lookOnce(ctx, c, members, configs))
	})
	if err := f.readmit(ctx, c); err != nil {
		late = worst([]error{err, late})
	}
	switch waiting := errors.As(late, new(waits)); {
	case waiting && c.unanswered:
		late = f.checkLost(ctx, c, late)
	case waiting && c.reachable && c.bootstrapped && c.etcd == "" && !c.busy():
		late = worst([]error{late, f.checkEtcd(ctx, c)}) // what is missing may be no control plane
	}
	if c.keys.next != nil && c.reachable {
		return f.rotate(ctx, c, late)
	}
	return f.changeNodes(ctx, c, late)
}

// changeNodes brings the nodes of a cluster to what its spec says by now: their versions,
// labels, configuration and authorities. late is what the cluster waits for.
func (f *function) changeNodes(ctx context.Context, c *cluster, late error) error {
	if !c.reachable || (late != nil && c.Status.Upgrade == nil) {
		return cmp.Or(f.amendEarly(ctx, c), c.withUnmet(ctx, late))
	}
	err := worst(slices.DeleteFunc([]error{f.upgrade(ctx, c), late}, func(err error) bool { return err == nil }))
	if err != nil || c.Status.Upgrade != nil {
		return err
	}
	if err := f.maintain(ctx, c); err != nil {
		return err
	}
	return f.beginRotation(ctx, c)
}

// readPlan reads a cluster's machines, lets those go that have left etcd, and makes the
// plan of the spec that the cluster follows.
func (f *function) readPlan(ctx context.Context, c *cluster) error {
	if err := f.readMachines(ctx, c); err != nil {
		return err
	}
	if err := f.releaseDeleted(ctx, c); err != nil {
		return err
	}
	var err error
	if c.plan, err = makePlan(c.wanted(), c.machines, f.talos); err != nil {
		return err
	}
	c.states = map[string]nodeState{}
	if c.Status.TalosVersion == "" {
		c.Status.TalosVersion = c.plan.talos
	}
	return nil
}

// renderUnprovided returns the members whose nodes have not been seen with their
// configuration, and the configurations of those that have not been provided. There are
// none where the spec of a cluster with nodes has a fault that concerns configurations
// only.
func (f *function) renderUnprovided(ctx context.Context, c *cluster) ([]member, map[string][]byte, error) {
	members := c.unconfigured()
	configs, err := f.renderAll(ctx, c, c.unprovided(members))
	if err != nil {
		return nil, configs, c.tolerate(v1alpha1.ConditionConfigApplied, err)
	}
	return members, configs, nil
}

// prepareMachines makes the machines that are missing, and everything that the
// configuration of their nodes needs. What a user has to change about that keeps a cluster
// with nodes only from what it concerns.
func (f *function) prepareMachines(ctx context.Context, c *cluster) error {
	if err := c.tolerate(v1alpha1.ConditionNetworkAvailable, f.checkNetwork(ctx, c)); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *cluster) error{f.reserveEndpoint, f.checkProviders, f.ensureMachines, f.protect, f.ensureCredentials, f.ensureEndpoint} {
		if err := step(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// lookOnce does what can be done with the nodes now. Who leaves does so whatever the
// others wait for.
func (f *function) lookOnce(ctx context.Context, c *cluster, members []member, configs map[string][]byte) error {
	late := f.configureOnce(ctx, c, members, configs)
	refused := errors.As(late, new(fault))
	if !refused {
		late = f.ensureBootstrap(ctx, c)
	}
	if late == nil {
		late = f.lookAtNodes(ctx, c)
		c.unanswered = errors.As(late, new(waits)) || errors.As(late, new(fault))
	}
	if err := f.shrink(ctx, c); err != nil && !refused {
		late = err
	}
	if late == nil {
		late = f.missingNodes(c)
	}
	if late == nil && !c.busy() {
		late = f.checkEtcd(ctx, c)
	}
	return late
}

// maintain looks after a cluster whose nodes are all there: their labels and
// taints, and their configuration, which may have been made before the spec changed.
func (f *function) maintain(ctx context.Context, c *cluster) error {
	if err := f.labelNodes(ctx, c); err != nil {
		return err
	}
	if err := f.fillScale(ctx, c); err != nil {
		return err
	}
	return f.moveEndpoint(ctx, c)
}

// admit writes into the status of a cluster that has been Ready that it is so no
// more, since people should not be told so for as long as a delivery waits.
func (f *function) admit(ctx context.Context, c *cluster, late error) error {
	if !errors.As(late, new(waits)) || !isTrue(c.KubernetesCluster, v1alpha1.ConditionReady) {
		return late
	}
	told := summarise(c, late)
	if err := f.write(ctx, c, told); err != nil {
		return err
	}
	return late
}

// controlPlanes are the addresses of the control planes that have their
// configuration, by name, also of those that leave.
func (c *cluster) controlPlanes() map[string]string {
	addresses := map[string]string{}
	for name, m := range c.machines {
		if poolOf(m) == controlPlanePool && installed(m) && m.Status.Phase == v1alpha1.MachineRunning && len(m.Status.IPAddresses) > 0 {
			addresses[name] = addressOf(m)
		}
	}
	return addresses
}

// close ends the connections of a delivery.
func (c *cluster) close() {
	if c.workload != nil {
		c.workload.close()
	}
}

// unconfigured are the members that are on their way to their configuration: whose
// machines have addresses, and whose nodes have not been seen with it. A control plane
// that grows takes one at a time, and none while one leaves.
func (c *cluster) unconfigured() []member {
	busy := c.Status.Version != "" && c.controlPlaneChanges()
	var found []member
	for _, m := range c.plan.members {
		machine := c.machines[m.name]
		if !addressed(machine) || installed(machine) {
			continue
		}
		if m.role == v1alpha1.RoleControlPlane && c.Status.Version != "" {
			if busy && !provided(machine) {
				continue
			}
			busy = true
		}
		found = append(found, m)
	}
	return found
}

// controlPlaneChanges tells whether a control plane is joining or leaving, by what
// was last seen of the nodes.
func (c *cluster) controlPlaneChanges() bool {
	if c.Status.Removing != "" {
		return true
	}
	for name, m := range c.machines {
		if poolOf(m) != controlPlanePool || !(installed(m) || provided(m)) {
			continue
		}
		ready := slices.ContainsFunc(c.Status.Nodes, func(n v1alpha1.NodeStatus) bool { return n.Name == name && n.State == "Ready" })
		if heldByEtcd(m) {
			continue // etcd needs another member before this one can leave
		}
		if leaving(m) || ((running(m) || !installed(m)) && !ready && m.Annotations[v1alpha1.AnnotationRemove] == "") {
			return true
		}
	}
	return false
}

// heldByEtcd reports whether a user has deleted a control plane that waits to leave etcd.
func heldByEtcd(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil && protected(m) && m.Annotations[v1alpha1.AnnotationRemoving] == ""
}

// checkNetwork makes sure that there is a network for the machines to be in.
func (f *function) checkNetwork(ctx context.Context, c *cluster) error {
	if c.network = c.Spec.NetworkNamespaceName; isTrue(c.KubernetesCluster, v1alpha1.ConditionNetworkAvailable) && c.network != "" && c.Status.Endpoint != "" {
		return nil
	}
	nn, err := network.Find(ctx, f.kube, c.Namespace, c.Spec.NetworkNamespaceName)
	var unresolved network.Unresolved
	if errors.As(err, &unresolved) {
		return fault{unresolved.Reason, unresolved.Message}
	}
	if err != nil {
		return err
	}
	c.network, c.networkReady = nn.Name, isReady(nn)
	if c.Status.Endpoint == "" {
		return checkPlacement(c, nn)
	}
	return nil
}

// checkProviders makes sure that the providers of machines that are to be made
// exist. A cluster with nodes goes on without the machines of one that does not.
func (f *function) checkProviders(ctx context.Context, c *cluster) error {
	known := map[string]error{}
	c.unmade = map[string]bool{}
	for _, m := range c.plan.members {
		ref := m.properties.ProviderRef
		if ref == nil || c.machines[m.name] != nil {
			continue
		}
		err, asked := known[ref.Name]
		if !asked {
			err = f.kube.Get(ctx, "", ref.Name, &v1alpha1.MachineProvider{})
			if kube.NotFound(err) {
				err = fault{"ProviderNotFound", fmt.Sprintf("pool %s: MachineProvider %s does not exist: create it, or change providerRef", m.pool, ref.Name)}
			}
			known[ref.Name] = err
		}
		if c.unmade[m.name] = err != nil; err != nil {
			if err := c.tolerate(v1alpha1.ConditionMachinesCreated, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// generating is how long keys are given to be made by whoever has begun.
const generating = 30 * time.Second

// ensureCredentials reads the keys of the cluster, or makes them once: nodes that have
// their configuration know no other keys. Making them takes a second of CPU, so a
// delivery that begins says so in the status, and others leave it to that one. If it
// fails, its event comes again, and goes on.
func (f *function) ensureCredentials(ctx context.Context, c *cluster) error {
	var err error
	if c.keys, err = f.readKeys(ctx, c.KubernetesCluster); err != nil {
		return err
	}
	if c.keys == nil {
		if c.keyed() {
			c.unanswered = true
			return fault{"KeysLost", fmt.Sprintf(
				"Secret %s is gone, and nodes know no other keys than those: restore it from a backup, or delete the cluster and create it again", secretName(c.KubernetesCluster, pkiSecret))}
		}
		if c.madeByAnother(f.now()) {
			return waits{reason: reasonGenerating, message: "waits for the cluster's keys to be made"}
		}
		if err := f.announce(ctx, c); err != nil {
			return err
		}
		if c.keys, err = f.createKeys(ctx, c.KubernetesCluster, c.plan.contract); err != nil {
			return err
		}
		if err := f.readMachines(ctx, c); err != nil {
			return err
		}
	}
	c.credentials = true
	if err := c.mirrorRotation(metav1.NewTime(f.now())); err != nil {
		return err
	}
	c.access, err = c.keys.access()
	return err
}

// keyed tells whether the keys of the cluster are in use: a node has or may have its
// configuration, or etcd has begun, whatever has become of that node.
func (c *cluster) keyed() bool {
	if isTrue(c.KubernetesCluster, v1alpha1.ConditionBootstrapped) || c.hasNodes() {
		return true
	}
	for _, m := range c.machines {
		if provided(m) {
			return true
		}
	}
	return false
}

// announce writes into the status that this delivery makes the keys. Of two that
// begin at once, one gets a conflict.
func (f *function) announce(ctx context.Context, c *cluster) error {
	meta.RemoveStatusCondition(&c.Status.Conditions, conditionCredentials)
	summarise(c, waits{reason: reasonGenerating, message: "makes the cluster's keys"})
	return f.patchStatus(ctx, c)
}

// madeByAnother tells whether a delivery has begun to make the keys, not long ago, that
// is not an earlier one of the event that is handled.
func (c *cluster) madeByAnother(now time.Time) bool {
	made := meta.FindStatusCondition(c.Status.Conditions, conditionCredentials)
	if made == nil || made.Reason != reasonGenerating || now.Sub(made.LastTransitionTime.Time) >= generating {
		return false
	}
	return c.event == "" || made.Message != c.making()
}

// making says who makes the keys.
func (c *cluster) making() string { return "the cluster's keys are being made for event " + c.event }

// patchStatus writes what has changed in the status since the object was read.
func (f *function) patchStatus(ctx context.Context, c *cluster) error {
	if _, err := f.kube.PatchStatus(ctx, c.before, c.KubernetesCluster); err != nil {
		return err
	}
	c.before = c.KubernetesCluster.DeepCopy()
	return nil
}
