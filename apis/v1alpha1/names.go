package v1alpha1

// Labels that the stack sets, and by which it finds what belongs together.
const (
	// LabelClusterName is the KubernetesCluster that an object belongs to.
	LabelClusterName = "cluster.vitistack.io/cluster-name"
	// LabelClusterRole is RoleControlPlane or RoleWorker.
	LabelClusterRole = "cluster.vitistack.io/role"
	// LabelWorkerGroup is the worker pool that a Machine belongs to.
	LabelWorkerGroup = "cluster.vitistack.io/worker-group"
	// LabelMachine is the Machine that an object was made for.
	LabelMachine = "vitistack.io/machine"
	// LabelMachineTemplate is the template that a Machine is sized by.
	LabelMachineTemplate = "vitistack.io/machine-template"
	// LabelCloudInit, with the value true, lets Machines take their user data from a
	// Secret.
	LabelCloudInit = "vitistack.io/cloud-init"
	// LabelManagedBy names who made an object.
	LabelManagedBy = "vitistack.io/managed-by"
	// LabelSourceMachine, LabelClusterID and LabelNodeRole carry the same facts
	// under the names that the separate operators used.
	LabelSourceMachine = "vitistack.io/source-machine"
	LabelClusterID     = "vitistack.io/clusterid"
	LabelNodeRole      = "vitistack.io/node-role"
)

// Values of LabelClusterRole and LabelNodeRole.
const (
	RoleControlPlane = "control-plane"
	RoleWorker       = "worker"
)

// Annotations that the stack reads or sets.
const (
	// AnnotationReconcile asks for a look at an object: any new value wakes the
	// functions that serve it.
	AnnotationReconcile = "vitistack.io/reconcile"
	// AnnotationNodePool is the worker pool of a Machine.
	AnnotationNodePool = "vitistack.io/nodepool"
	// AnnotationProvider is the provider that a NetworkNamespace's segment was asked
	// of, which is the one that has to take it back.
	AnnotationProvider = "vitistack.io/provisioned-by"
	// AnnotationApproval of a Namespace asks for approval of all clusters in it: an
	// ApprovalPolicy.
	AnnotationApproval = "vitistack.io/approval"
	// AnnotationRemove, with the value true, names a Machine of a cluster that is to
	// go before any other. What takes its place is made first where it still works.
	AnnotationRemove = "vitistack.io/remove"
	// AnnotationRemoving tells since when a Machine has been leaving its cluster.
	AnnotationRemoving = "vitistack.io/removing"
	// AnnotationForce, with the value true, gives up on what a removal waits for: on
	// a Machine its drain and its etcd member, on a KubernetesCluster its Machines.
	AnnotationForce = "vitistack.io/force"
	// AnnotationRotation of a Secret with the keys of a cluster is the value of
	// spec.talos.rotateAuthorities that they were made for, and AnnotationRotationPhase,
	// on the keys of a rotation that is under way, its RotationPhase.
	AnnotationRotation      = "vitistack.io/rotation"
	AnnotationRotationPhase = "vitistack.io/rotation-phase"
	// AnnotationUID is the UID of the object that asked for the annotated one.
	AnnotationUID = "vitistack.io/uid"
)

// Finalizers, by the function that removes them.
const (
	// FinalizerMachine keeps a Machine until its VM, disks and network are gone.
	FinalizerMachine = "machine.vitistack.io/cleanup"
	// FinalizerEtcd keeps the Machine of a control plane until etcd has a majority without
	// it. Its virtual machine is kept until then.
	FinalizerEtcd = "cluster.vitistack.io/etcd-member"
	// FinalizerUsedBy, followed by the name of a Machine, keeps a NetworkConfiguration
	// until that has no virtual machine any more, which would still have its addresses.
	FinalizerUsedBy = "used-by.vitistack.io/"
	// FinalizerMachineProvider keeps a MachineProvider until no Machine is made on it any
	// more, since a Machine cannot be deleted without its provider.
	FinalizerMachineProvider = "machineprovider.vitistack.io/finalizer"
	// FinalizerCluster keeps a KubernetesCluster until its Machines are gone.
	FinalizerCluster = "cluster.vitistack.io/finalizer"
	// FinalizerNetworkNamespace keeps a NetworkNamespace until its users are gone
	// and its source has taken the segment back.
	FinalizerNetworkNamespace = "networknamespace.vitistack.io/finalizer"
	// FinalizerStaticIP keeps an IPAllocation until its address is given back.
	FinalizerStaticIP = "vitistack.io/static-ip-finalizer"
	// FinalizerKea keeps a NetworkConfiguration until its reservations are gone.
	FinalizerKea = "vitistack.io/networkconfiguration-finalizer"
)

// ConditionReady is the condition that every kind has. Its reason and message
// say what is being waited for, or what to change.
const ConditionReady = "Ready"
