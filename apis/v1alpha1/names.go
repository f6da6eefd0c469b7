package v1alpha1

// Labels of objects that belong together.
const (
	// LabelClusterName is the KubernetesCluster that an object belongs to.
	LabelClusterName = "cluster.vitistack.io/cluster-name"
	// LabelClusterRole is RoleControlPlane or RoleWorker.
	LabelClusterRole = "cluster.vitistack.io/role"
	// LabelWorkerGroup is the worker pool that a Machine belongs to.
	LabelWorkerGroup = "cluster.vitistack.io/worker-group"
	// LabelMachine is the Machine for which an object was created.
	LabelMachine = "vitistack.io/machine"
	// LabelHolder, on a Lease that claims something, is its holder: of a VMID the UID of the Machine.
	LabelHolder = "vitistack.io/holder"
	// LabelMachineTemplate is the template of a Machine.
	LabelMachineTemplate = "vitistack.io/machine-template"
	// LabelCloudInit, with the value true, lets Machines take their user data from a
	// Secret.
	LabelCloudInit = "vitistack.io/cloud-init"
	// LabelManagedBy names the function that created an object.
	LabelManagedBy = "vitistack.io/managed-by"
	// LabelCarriedByEvents, on a VirtualMachine and its VirtualMachineInstance, says that they hold no first configuration of the
	// guest, so that events may carry them.
	LabelCarriedByEvents = "vitistack.io/without-secrets"
	// LabelHeartbeat marks the Leases that show that events flow: broker, event-source or resync.
	LabelHeartbeat = "vitistack.io/heartbeat"
	// LabelSourceMachine, LabelClusterID and LabelNodeRole have the same values under
	// the names of the separate operators.
	LabelSourceMachine = "vitistack.io/source-machine"
	LabelClusterID     = "vitistack.io/clusterid"
	LabelNodeRole      = "vitistack.io/node-role"
)

// Values of LabelClusterRole and LabelNodeRole.
const (
	RoleControlPlane = "control-plane"
	RoleWorker       = "worker"
)

// ControlPlanePool is the name of the pool of control plane machines, which becomes part of their
// names. A worker pool cannot have it.
const ControlPlanePool = "cp"

// Annotations that the stack reads or sets.
const (
	// AnnotationReconcile requests a reconcile of an object at each new value.
	AnnotationReconcile = "vitistack.io/reconcile"
	// AnnotationNodePool is the worker pool of a Machine.
	AnnotationNodePool = "vitistack.io/nodepool"
	// AnnotationProvider is the provider that provisioned the segment of a
	// NetworkNamespace and releases it, or the MachineProvider of a Machine.
	AnnotationProvider = "vitistack.io/provisioned-by"
	// AnnotationAcceptHypervisor on a MachineProvider is the ID of a hypervisor that replaces the one which
	// had the virtual machines of its Machines.
	AnnotationAcceptHypervisor = "vitistack.io/accept-hypervisor"
	// AnnotationApproval on a Namespace is the ApprovalPolicy of all clusters in it.
	AnnotationApproval = "vitistack.io/approval"
	// AnnotationRemove, with the value true, has a cluster remove a Machine before any
	// other. If its node works, its replacement is created first.
	AnnotationRemove = "vitistack.io/remove"
	// AnnotationReplace is the ReplaceReason for which bootstrap-talos replaces a Machine.
	AnnotationReplace = "vitistack.io/replace"
	// AnnotationRemoving is the time at which the removal, or then the drain, of a Machine from its cluster
	// started. On a Node that is cordoned for a removal, it is the UID of the Machine.
	AnnotationRemoving = "vitistack.io/removing"
	// AnnotationResizing, on a Node that is cordoned while its Machine is resized in place, is
	// the UID of the Machine.
	AnnotationResizing = "vitistack.io/resizing"
	// AnnotationUpgrading, on a Node that is cordoned while its Talos is upgraded, is the UID of the
	// Machine.
	AnnotationUpgrading = "vitistack.io/upgrading"
	// AnnotationForce, with the value true, has a deletion no longer wait: on a Machine
	// for its drain and its etcd member, on a KubernetesCluster for its Machines.
	AnnotationForce = "vitistack.io/force"
	// AnnotationRotation on a Secret with the keys of a cluster is the value of
	// spec.talos.rotateAuthorities for which they were generated.
	// AnnotationRotationPhase on the keys of a rotation in progress is its
	// RotationPhase.
	AnnotationRotation      = "vitistack.io/rotation"
	AnnotationRotationPhase = "vitistack.io/rotation-phase"
	// AnnotationTemplate on a KubernetesCluster is the ClusterTemplate whose fields its spec has, with
	// the revision and the fields, as JSON.
	AnnotationTemplate = "vitistack.io/cluster-template"
	// AnnotationUID is the UID of the object for which the annotated one was created.
	AnnotationUID = "vitistack.io/uid"
)

// FieldManagerTemplate owns the fields of a KubernetesCluster that come from its ClusterTemplate (metadata.managedFields).
const FieldManagerTemplate = "vitistack-template"

// ReplaceReason is why a cluster replaces a Machine.
type ReplaceReason string

// ReplaceOutdated: the Machine has another template or provider than its pool. ReplaceUnhealthy:
// its node was unhealthy for too long.
const (
	ReplaceOutdated  ReplaceReason = "Outdated"
	ReplaceUnhealthy ReplaceReason = "Unhealthy"
)

// Finalizers, by the function that removes them.
const (
	// FinalizerMachine keeps a Machine until its virtual machine, disks and network
	// interfaces are deleted.
	FinalizerMachine = "machine.vitistack.io/cleanup"
	// FinalizerEtcd keeps the Machine of a control plane node, and its virtual machine,
	// until etcd has a majority without it.
	FinalizerEtcd = "cluster.vitistack.io/etcd-member"
	// FinalizerUsedBy, followed by the name of a Machine, keeps a NetworkConfiguration
	// until the virtual machine of that Machine, which uses its addresses, is deleted.
	FinalizerUsedBy = "used-by.vitistack.io/"
	// FinalizerMachineProvider keeps a MachineProvider until no Machine uses it, because a
	// Machine cannot be deleted without its MachineProvider.
	FinalizerMachineProvider = "machineprovider.vitistack.io/finalizer"
	// FinalizerCluster keeps a KubernetesCluster until its Machines are gone.
	FinalizerCluster = "cluster.vitistack.io/finalizer"
	// FinalizerClusterTemplate keeps a ClusterTemplate until no KubernetesCluster names it.
	FinalizerClusterTemplate = "clustertemplate.vitistack.io/finalizer"
	// FinalizerNetworkNamespace keeps a NetworkNamespace until its users are gone and its
	// provider has released the segment.
	FinalizerNetworkNamespace = "networknamespace.vitistack.io/finalizer"
	// FinalizerStaticIP keeps an IPAllocation until its address is released.
	FinalizerStaticIP = "vitistack.io/static-ip-finalizer"
	// FinalizerKea keeps a NetworkConfiguration until its reservations are deleted.
	FinalizerKea = "vitistack.io/networkconfiguration-finalizer"
)

// ProxmoxIDScheme is the beginning of status.providerID of Machines on Proxmox VE.
const ProxmoxIDScheme = "proxmox://"
