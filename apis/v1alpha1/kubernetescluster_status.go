package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// KubernetesClusterStatus is the cluster as it is.
type KubernetesClusterStatus struct {
	// +optional
	Phase ClusterPhase `json:"phase,omitempty"`
	// metadata.generation from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Message of the condition Ready: the current step, and what it waits for.
	// +optional
	Message string `json:"message,omitempty"`
	// Where the workload API is reached, for example https://192.168.10.10:6443.
	// +optional
	// +kubebuilder:validation:MaxLength=269
	Endpoint string `json:"endpoint,omitempty"`
	// NetworkNamespace in which the machines have their addresses. New machines get theirs there too.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkNamespaceName string `json:"networkNamespaceName,omitempty"`
	// Kubernetes version that the control plane runs.
	// +optional
	Version string `json:"version,omitempty"`
	// Talos version of new nodes.
	// +optional
	TalosVersion string `json:"talosVersion,omitempty"`
	// Ready and desired control plane nodes. Example: 1/3.
	// +optional
	ControlPlaneReady string `json:"controlPlaneReady,omitempty"`
	// Ready and desired workers of all pools. Example: 2/2.
	// +optional
	WorkersReady string `json:"workersReady,omitempty"`
	// Control plane Machine on which etcd is bootstrapped.
	// +optional
	BootstrapMachine string `json:"bootstrapMachine,omitempty"`
	// UID of that machine.
	// +optional
	BootstrapUID types.UID `json:"bootstrapUID,omitempty"`
	// Last valid spec. It stays in effect while the current spec is invalid.
	// +optional
	Accepted *AcceptedSpec `json:"accepted,omitempty"`
	// Last bootstrap request, until etcd runs.
	// +optional
	BootstrapRequest *BootstrapRequest `json:"bootstrapRequest,omitempty"`
	// Machines that are about to be created, after the first machines of the cluster.
	// +optional
	Adding []string `json:"adding,omitempty"`
	// Control plane Machine that is being removed. There is at most one.
	// +optional
	Removing string `json:"removing,omitempty"`
	// Number of workers of all pools with autoscaling.
	// +optional
	ScaledWorkers int32 `json:"scaledWorkers,omitempty"`
	// Labels of the Machines of those workers, for autoscalers.
	// +optional
	Selector string `json:"selector,omitempty"`
	// Worker pools, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Pools []PoolStatus `json:"pools,omitempty"`
	// Nodes, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []NodeStatus `json:"nodes,omitempty"`
	// Upgrade that is in progress or has failed.
	// +optional
	Upgrade *UpgradeStatus `json:"upgrade,omitempty"`
	// Machines that are being resized in place, or whose resize failed.
	// +optional
	// +listType=map
	// +listMapKey=name
	Resizes []MachineResize `json:"resizes,omitempty"`
	// Rotation of the certificate authorities. Absent if none was requested.
	// +optional
	Authorities *AuthoritiesStatus `json:"authorities,omitempty"`
	// Add-ons of the spec, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Addons []AddonStatus `json:"addons,omitempty"`
	// What the workload cluster has of the manifests in the machine configurations of its control planes, by
	// their names in Talos: a digest, or the image of kube-proxy and coredns.
	// +optional
	TalosManifests map[string]string `json:"talosManifests,omitempty"`
	// Decision of the ticketing system, where one is required.
	// +optional
	Approval *ApprovalStatus `json:"approval,omitempty"`
	// Secrets with the credentials of the cluster, in the same namespace.
	// +optional
	Secrets *ClusterSecrets `json:"secrets,omitempty"`
	// When the next reconcile is due if no event arrives earlier.
	// +optional
	NextCheckTime *metav1.Time `json:"nextCheckTime,omitempty"`
	// Conditions of the cluster, by type. Ready sums the others up, and its message says what to
	// do.
	// +optional
	// +kubebuilder:validation:MaxItems=50
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AcceptedSpec is the part of a spec that can be invalid.
type AcceptedSpec struct {
	// Topology with the versions and sizes that were valid.
	Topology ClusterTopology `json:"topology"`
	// Talos version that the spec named.
	// +optional
	TalosVersion string `json:"talosVersion,omitempty"`
}

// BootstrapRequest is a request to a node to bootstrap etcd. The node keeps it in
// memory until it has pulled the image of etcd, so a reboot before that loses it.
type BootstrapRequest struct {
	// When the request was sent.
	Time metav1.Time `json:"time"`
	// Boot ID of the node when the request was sent.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Whether the node accepted the request.
	// +optional
	Accepted bool `json:"accepted,omitempty"`
}

// PoolStatus counts the machines of a pool.
type PoolStatus struct {
	// Name of the pool, as in spec.topology.workers.
	Name string `json:"name"`
	// Desired number of machines.
	Replicas int32 `json:"replicas"`
	// Machines whose node is Ready.
	ReadyReplicas int32 `json:"readyReplicas"`
}

// NodeStatus is one node.
type NodeStatus struct {
	// Name of the node and of its Machine.
	Name string `json:"name"`
	// control-plane or worker.
	Role string `json:"role"`
	// Address at which the node is reached, the first of its Machine.
	// +optional
	Address string `json:"address,omitempty"`
	// Waiting, Maintenance, Configured, Ready, NotReady, Upgrading, Resizing, Unreachable or
	// Foreign.
	State string `json:"state"`
	// Kubernetes version that the node's kubelet runs.
	// +optional
	Version string `json:"version,omitempty"`
	// Talos version that the node runs.
	// +optional
	TalosVersion string `json:"talosVersion,omitempty"`
}

// AddonStatus is one add-on.
type AddonStatus struct {
	// Name of the add-on.
	Name string `json:"name"`
	// Where the manifests are from: ConfigMap and its name, or the URL.
	// +optional
	Source string `json:"source,omitempty"`
	// SHA-256 of the manifests that were applied last. Absent if they are not applied.
	// +optional
	Digest string `json:"digest,omitempty"`
	// Number of objects that were applied.
	// +optional
	Objects int32 `json:"objects,omitempty"`
	// Why the present manifests are not applied. Absent if they are.
	// +optional
	Message string `json:"message,omitempty"`
}

// UpgradeKind is what an upgrade changes.
// +kubebuilder:validation:Enum=Talos;ControlPlane;Kubelet
type UpgradeKind string

// Talos is changed by writing another image beside the present one and
// rebooting into it. Kubernetes is changed in place, the components of all control
// planes before any kubelet.
const (
	UpgradeTalos        UpgradeKind = "Talos"
	UpgradeControlPlane UpgradeKind = "ControlPlane"
	UpgradeKubelet      UpgradeKind = "Kubelet"
)

// UpgradeStatus is a change of versions, one node after the other.
type UpgradeStatus struct {
	// Talos, ControlPlane or Kubelet.
	Kind UpgradeKind `json:"kind"`
	// Generation of the spec that asked for it.
	Generation int64 `json:"generation"`
	// Nodes that run the desired version, and all nodes. Example: 2/5.
	// +optional
	Progress string `json:"progress,omitempty"`
	// Nodes that are being upgraded, or whose upgrade failed.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []NodeUpgrade `json:"nodes,omitempty"`
}

// UpgradeStep is how far the upgrade of a node is.
// +kubebuilder:validation:Enum=Draining;Requested;Failed
type UpgradeStep string

// UpgradeDraining evicts pods, UpgradeRequested sends the upgrade request and waits
// for the node, and UpgradeFailed stops the upgrade of the cluster.
const (
	UpgradeDraining  UpgradeStep = "Draining"
	UpgradeRequested UpgradeStep = "Requested"
	UpgradeFailed    UpgradeStep = "Failed"
)

// NodeUpgrade is the upgrade of one node.
type NodeUpgrade struct {
	// Name of the node and of its Machine.
	Name string `json:"name"`
	// Draining, Requested or Failed.
	Step UpgradeStep `json:"step"`
	// Version that the node ran before.
	From string `json:"from"`
	// Version that the node is upgraded to.
	To string `json:"to"`
	// Boot ID of the node before the upgrade request.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// Whether the node was cordoned for the upgrade and is uncordoned after it.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`
	// When the step began.
	Since metav1.Time `json:"since"`
	// When the last upgrade request was sent.
	// +optional
	Asked *metav1.Time `json:"asked,omitempty"`
	// What blocks the upgrade of the node.
	// +optional
	Message string `json:"message,omitempty"`
}

// ResizeStep is how far a machine is that is resized in place.
// +kubebuilder:validation:Enum=Draining;Restarting;Failed
type ResizeStep string

// ResizeDraining evicts pods, ResizeRestarting restarts the machine with its new size and waits for
// its node, and ResizeFailed stops the rollout.
const (
	ResizeDraining   ResizeStep = "Draining"
	ResizeRestarting ResizeStep = "Restarting"
	ResizeFailed     ResizeStep = "Failed"
)

// MachineResize is a Machine that gets another template in place.
type MachineResize struct {
	// Name of the Machine and of its node.
	Name string `json:"name"`
	// UID of the Machine.
	UID types.UID `json:"uid"`
	// Draining, Restarting or Failed.
	Step ResizeStep `json:"step"`
	// metadata.generation from which this step was computed.
	Generation int64 `json:"generation"`
	// Template that the Machine had before.
	From string `json:"from"`
	// Template that the Machine gets.
	To string `json:"to"`
	// Boot ID of the node before the restart. Absent before that is requested.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// When the step began.
	Since metav1.Time `json:"since"`
	// What the resize waits for, or why it failed.
	// +optional
	Message string `json:"message,omitempty"`
}

// RotationPhase is how far a rotation of authorities is.
// +kubebuilder:validation:Enum=Accepting;Issuing;RemovingKubernetes;RemovingTalos;Finishing
type RotationPhase string

// Accepting has every node accept certificates of the new authorities, and Issuing has the
// new ones sign. RemovingKubernetes and RemovingTalos have every node no longer accept
// certificates of the old authority of Kubernetes, and of the Talos API. Finishing replaces
// the keys that the stack keeps.
const (
	RotationAccepting          RotationPhase = "Accepting"
	RotationIssuing            RotationPhase = "Issuing"
	RotationRemovingKubernetes RotationPhase = "RemovingKubernetes"
	RotationRemovingTalos      RotationPhase = "RemovingTalos"
	RotationFinishing          RotationPhase = "Finishing"
)

// AuthoritiesStatus is the rotation of the certificate authorities.
type AuthoritiesStatus struct {
	// Value of spec.talos.rotateAuthorities whose rotation is under way.
	// +optional
	Rotation string `json:"rotation,omitempty"`
	// Accepting, Issuing, RemovingKubernetes, RemovingTalos or Finishing, while a rotation
	// is under way.
	// +optional
	Phase RotationPhase `json:"phase,omitempty"`
	// When the phase began.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Nodes that have completed the phase, and all nodes. Example: 2/5.
	// +optional
	Progress string `json:"progress,omitempty"`
	// Value of spec.talos.rotateAuthorities of the last completed rotation.
	// +optional
	Completed string `json:"completed,omitempty"`
}

// ApprovalState is how far a decision is.
// +kubebuilder:validation:Enum=Requested;Approved;Rejected
type ApprovalState string

// States of an approval.
const (
	ApprovalRequested ApprovalState = "Requested"
	ApprovalApproved  ApprovalState = "Approved"
	ApprovalRejected  ApprovalState = "Rejected"
)

// ApprovalStatus is a decision of the ticketing system.
type ApprovalStatus struct {
	// Requested, Approved or Rejected.
	State ApprovalState `json:"state"`
	// metadata.generation that the request is about.
	Generation int64 `json:"generation"`
	// Work order of the request.
	// +optional
	Workorder string `json:"workorder,omitempty"`
	// Requested machines, by pool. The control plane is the pool cp.
	// +optional
	// +listType=map
	// +listMapKey=name
	Requested []ApprovedPool `json:"requested,omitempty"`
	// Maximum number of machines of each pool, as last approved.
	// +optional
	// +listType=map
	// +listMapKey=name
	Approved []ApprovedPool `json:"approved,omitempty"`
	// User or system that decided.
	// +optional
	By string `json:"by,omitempty"`
	// When it was decided.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// Comment of the decision.
	// +optional
	Comment string `json:"comment,omitempty"`
}

// ApprovedPool is a number of machines of one size.
type ApprovedPool struct {
	// Name of the pool. The control plane is the pool cp.
	Name string `json:"name"`
	// Number of machines.
	Replicas int32 `json:"replicas"`
	// Size of the machines, as in spec.topology.
	// +optional
	Template string `json:"template,omitempty"`
}

// ClusterSecrets names the Secrets of a cluster.
type ClusterSecrets struct {
	// Secret with the key kubeconfig.
	// +optional
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Secret with the key talosconfig.
	// +optional
	Talosconfig string `json:"talosconfig,omitempty"`
}
