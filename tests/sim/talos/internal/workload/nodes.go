package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubelet is the kubelet of a machine.
type Kubelet struct {
	// Name is the Node's name.
	Name         string
	Address      string
	ControlPlane bool
	// Schedulable control planes have no taint.
	Schedulable bool
	// Labels, Annotations and Taints are those of the machine's configuration.
	Labels, Annotations map[string]string
	Taints              []corev1.Taint
	Version             string
	OSImage, Kernel     string
	Runtime             string
	MachineID           string
	SystemUUID, BootID  string
	ProviderID          string
	CPUs                int
	Memory              uint64
	// WithoutCNI is whether Talos installs no network plug-in.
	WithoutCNI bool
	// PodCIDR is that of the configuration of the cluster. Without one, nodes need no prefix.
	PodCIDR PodCIDR
	// StaticPods has the images of the control plane's pods by name.
	StaticPods map[string]string
	// StaticPodAnnotations are the annotations of these pods.
	StaticPodAnnotations map[string]string
}

// Join starts a kubelet: it creates its Node or takes over the existing one, and is ready a moment
// later. A deleted Node is created again by Join only.
func (c *Cluster) Join(k Kubelet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	agent := &kubelet{Kubelet: k, alive: true}
	if old := c.kubelets[k.Name]; old != nil {
		old.stop()
	}
	c.kubelets[k.Name] = agent
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.Name}}
	obj, err := c.store.get(nodeKind, "", k.Name)
	if err == nil {
		node = obj.(*corev1.Node).DeepCopy()
	}
	describeNode(node, k)
	own(node, k)
	c.allocatePodCIDR(node, k.PodCIDR)
	if condition(node, corev1.NodeReady) == nil {
		setReady(node, corev1.ConditionFalse, "KubeletNotReady", "container runtime network not ready", c.store.now())
	}
	if err := c.store.put(nodeKind, node); err != nil {
		return err
	}
	if err := errors.Join(c.lease(k.Name), c.mirror(k)); err != nil {
		return err
	}
	agent.timer = c.after(c.timing.NodeReady, func() error { return c.report(agent) })
	return c.reconcile()
}

// lease creates the node's heartbeat. It is not renewed, because an idle cluster must not write.
func (c *Cluster) lease(name string) error {
	if _, err := c.store.get(leaseKind, corev1.NamespaceNodeLease, name); err == nil {
		return nil
	}
	seconds, now := int32(40), metav1.NewMicroTime(c.store.now())
	return c.store.put(leaseKind, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})
}

// report sets the Node ready, as its kubelet does.
func (c *Cluster) report(agent *kubelet) error {
	node, ok := c.node(agent.Name)
	if !ok || !agent.alive || c.kubelets[agent.Name] != agent {
		return nil
	}
	agent.started = true
	if !c.hasNetwork(agent) {
		return c.reconcile()
	}
	agent.ready = true
	node = node.DeepCopy()
	setReady(node, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status", c.store.now())
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, lifecycleTaint)
	if err := c.store.put(nodeKind, node); err != nil {
		return err
	}
	return c.reconcile()
}

// Leave ends a kubelet. The Node stays, and becomes not ready after a grace period.
func (c *Cluster) Leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	agent := c.kubelets[name]
	if agent == nil || !agent.alive {
		return
	}
	agent.stop()
	agent.alive, agent.started, agent.ready = false, false, false
	agent.timer = c.after(c.timing.NodeLost, c.reconcile)
}

// reconcileNodes is the node controller: it makes a Node unknown and taints it once its kubelet has
// been silent for the grace period.
func (c *Cluster) reconcileNodes() error {
	for _, obj := range c.store.list(nodeKind, "") {
		node := obj.(*corev1.Node)
		agent := c.kubelets[node.Name]
		ready := condition(node, corev1.NodeReady)
		if (agent != nil && (agent.alive || agent.timer.pending())) || (ready != nil && ready.Status == corev1.ConditionUnknown) {
			continue
		}
		next := node.DeepCopy()
		setReady(next, corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status.", c.store.now())
		now := metav1.NewTime(c.store.now())
		for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
			next.Spec.Taints = append(next.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: effect, TimeAdded: &now})
		}
		if err := c.store.put(nodeKind, next); err != nil {
			return err
		}
	}
	return nil
}

// Nodes returns all Nodes.
func (c *Cluster) Nodes() []NodeView {
	c.mu.Lock()
	defer c.mu.Unlock()
	var nodes []NodeView
	for _, obj := range c.store.list(nodeKind, "") {
		nodes = append(nodes, obj.(*corev1.Node))
	}
	return nodes
}

// Node returns a Node.
func (c *Cluster) Node(name string) (node *corev1.Node, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node(name)
}

func (c *Cluster) node(name string) (*corev1.Node, bool) {
	obj, err := c.store.get(nodeKind, "", name)
	if err != nil {
		return nil, false
	}
	return obj.(*corev1.Node), true
}

func describeNode(node *corev1.Node, k Kubelet) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	maps.Copy(node.Labels, map[string]string{
		corev1.LabelHostname: k.Name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
		"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
	})
	if node.Spec.ProviderID == "" {
		node.Spec.ProviderID = k.ProviderID
	}
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: k.Address}, {Type: corev1.NodeHostName, Address: k.Name},
	}
	node.Status.NodeInfo = corev1.NodeSystemInfo{
		MachineID: k.MachineID, SystemUUID: k.SystemUUID, BootID: k.BootID,
		KernelVersion: k.Kernel, OSImage: k.OSImage, ContainerRuntimeVersion: k.Runtime,
		KubeletVersion: k.Version, OperatingSystem: "linux", Architecture: "amd64",
	}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(k.CPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(int64(k.Memory), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(110, resource.DecimalSI),
	}
	node.Status.Allocatable = node.Status.Capacity
}

// The annotations in which Talos records what it manages of a Node, so that it removes what is no
// longer in the machine's configuration.
const (
	ownedLabels      = "talos.dev/owned-labels"
	ownedAnnotations = "talos.dev/owned-annotations"
	ownedTaints      = "talos.dev/owned-taints"
)

// Configure applies the labels, annotations and taints of a changed machine configuration to a Node.
// Without a Node it does nothing.
func (c *Cluster) Configure(k Kubelet) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	node, ok := c.node(k.Name)
	if !ok {
		return nil
	}
	if agent := c.kubelets[k.Name]; agent != nil {
		agent.Kubelet = k
	}
	next := node.DeepCopy()
	own(next, k)
	if unchanged(node, next) {
		return nil
	}
	if err := c.store.put(nodeKind, next); err != nil {
		return err
	}
	return c.reconcile()
}

// own sets what the configuration has, and removes what it no longer has. A worker has its kubelet's
// rights: if one label is forbidden, it sets none.
func own(node *corev1.Node, k Kubelet) {
	if !k.ControlPlane && slices.ContainsFunc(slices.Collect(maps.Keys(k.Labels)), restrictedLabel) {
		return
	}
	labels, taints := maps.Clone(k.Labels), slices.Clone(k.Taints)
	if labels == nil {
		labels = map[string]string{}
	}
	if k.ControlPlane {
		labels["node-role.kubernetes.io/control-plane"] = ""
		if !k.Schedulable {
			taints = append(taints, corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule})
		}
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	ownMap(node, ownedLabels, node.Labels, labels)
	ownMap(node, ownedAnnotations, node.Annotations, k.Annotations)
	var keys []string
	for _, t := range taints {
		keys = append(keys, t.Key)
	}
	managed := append(owned(node, ownedTaints), keys...)
	node.Spec.Taints = append(slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(managed, t.Key) }), taints...)
	remember(node, ownedTaints, keys)
}

func ownMap(node *corev1.Node, annotation string, present, wanted map[string]string) {
	for _, name := range owned(node, annotation) {
		if _, keep := wanted[name]; !keep {
			delete(present, name)
		}
	}
	maps.Copy(present, wanted)
	remember(node, annotation, slices.Sorted(maps.Keys(wanted)))
}

func owned(node *corev1.Node, annotation string) []string {
	var names []string
	_ = json.Unmarshal([]byte(node.Annotations[annotation]), &names) // an invalid value lists nothing
	return names
}

func remember(node *corev1.Node, annotation string, names []string) {
	if len(names) == 0 {
		delete(node.Annotations, annotation)
		return
	}
	encoded, _ := json.Marshal(names) // strings can be encoded
	node.Annotations[annotation] = string(encoded)
}

// restrictedLabel reports whether the NodeRestriction admission plugin forbids a kubelet to set a
// label on its own Node.
func restrictedLabel(name string) bool {
	domain, _, _ := strings.Cut(name, "/")
	if !strings.HasSuffix("."+domain, ".kubernetes.io") && !strings.HasSuffix("."+domain, ".k8s.io") {
		return false
	}
	switch name {
	case corev1.LabelHostname, corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelInstanceTypeStable,
		corev1.LabelTopologyRegion, corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelFailureDomainBetaZone:
		return false
	}
	for _, free := range []string{"kubelet.kubernetes.io", "node.kubernetes.io"} {
		if strings.HasSuffix("."+domain, "."+free) {
			return false
		}
	}
	return true
}

// Cordon cordons a node and records that Talos did, as a machine does before it goes down.
func (c *Cluster) Cordon(name string) error {
	return c.changeNode(name, func(node *corev1.Node) {
		if !node.Spec.Unschedulable {
			node.Spec.Unschedulable = true
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, cordonedByTalos, "true")
		}
	})
}

// Uncordon reverts Cordon, and keeps a cordon by others.
func (c *Cluster) Uncordon(name string) error {
	return c.changeNode(name, func(node *corev1.Node) {
		if node.Annotations[cordonedByTalos] != "" {
			node.Spec.Unschedulable = false
			delete(node.Annotations, cordonedByTalos)
		}
	})
}

const cordonedByTalos = "talos.dev/cordoned"

func (c *Cluster) changeNode(name string, change func(*corev1.Node)) error {
	_, err := c.update(&request{kind: nodeKind, name: name}, nodeChange(change))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("change node %s: %w", name, err)
	}
	return nil
}

// NodeView returns a Node, which must not be changed.
type NodeView = *corev1.Node
