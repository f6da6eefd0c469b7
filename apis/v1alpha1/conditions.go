package v1alpha1

// ConditionReady is a condition of every kind. Its reason and message say what the object
// waits for, or what to change.
const ConditionReady = "Ready"

// ConditionReconciling and ConditionStalled say more about an object that is not Ready, as kstatus
// (sigs.k8s.io/cli-utils/pkg/kstatus) defines them: Reconciling is True while the stack continues by
// itself, and Stalled is True while a person has to act. Exactly one of the two exists then, with the
// reason and the message of Ready. An object that is Ready has neither.
const (
	ConditionReconciling = "Reconciling"
	ConditionStalled     = "Stalled"
)

// Conditions of a KubernetesCluster in addition to Ready, Reconciling and Stalled, the first ones in the order in which
// they become True.
const (
	ConditionTopologyValid    = "TopologyValid"
	ConditionNetworkAvailable = "NetworkAvailable"
	ConditionMachinesCreated  = "MachinesCreated"
	ConditionMachinesRunning  = "MachinesRunning"
	ConditionConfigApplied    = "ConfigApplied"
	ConditionBootstrapped     = "Bootstrapped"
	ConditionNodesReady       = "NodesReady"
	// ConditionApproved is set only if the cluster needs approval.
	ConditionApproved = "Approved"
	// ConditionVersionsCurrent is True if every node runs the versions of the spec.
	ConditionVersionsCurrent = "VersionsCurrent"
	ConditionEtcdHealthy     = "EtcdHealthy"
	// ConditionMachinesCurrent is True if every Machine has the template and the provider of its
	// pool.
	ConditionMachinesCurrent = "MachinesCurrent"
	// ConditionMachinesHealthy is True if every node is Ready, and says otherwise whether the
	// health check replaces machines.
	ConditionMachinesHealthy = "MachinesHealthy"
	// ConditionConfigCurrent is True if every node runs the configuration of the spec.
	ConditionConfigCurrent = "ConfigCurrent"
	// ConditionAuthoritiesRotated is set only after spec.talos.rotateAuthorities was set.
	ConditionAuthoritiesRotated = "AuthoritiesRotated"
	// ConditionAddonsApplied is set only if the spec has add-ons. It is True if all of their manifests
	// are applied.
	ConditionAddonsApplied = "AddonsApplied"
	// ConditionForced is True while a forced deletion does not wait for Machines, which it lists, and
	// otherwise absent.
	ConditionForced = "Forced"
)

// Conditions of a Machine in addition to Ready, Reconciling and Stalled.
const (
	ConditionVirtualMachineReady = "VirtualMachineReady"
	ConditionStorageReady        = "StorageReady"
	ConditionNetworkReady        = "NetworkReady"
	// ConditionRestartRequired is True while a change of the spec needs a restart, and
	// otherwise absent.
	ConditionRestartRequired = "RestartRequired"
	// ConditionMachineConfigRemoved of a node's Machine is False while its hypervisor has the
	// machine configuration of the node, and True after it has been removed there.
	ConditionMachineConfigRemoved = "MachineConfigRemoved"
)

// ConditionPrivilegesGranted is a condition of a MachineProvider. It is True if its user
// has every privilege that machines need, and its message names the missing ones.
const ConditionPrivilegesGranted = "PrivilegesGranted"

// ConditionSpoofProtection is a condition of a MachineProvider of type proxmox. It is
// True if its machines can send from their own MAC addresses only.
const ConditionSpoofProtection = "SpoofProtection"

// ConditionOrphansFound is a condition of a MachineProvider. It is True if the hypervisor
// has virtual machines of the stack whose Machine does not exist, and its message says
// how to remove them. It is Unknown if the virtual machines cannot be listed.
const ConditionOrphansFound = "OrphansFound"
