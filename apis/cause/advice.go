package cause

import (
	"maps"
	"slices"
	"strings"
)

// Role is a group of people who may have to act.
type Role string

// The roles. NoAction means that the stack continues without an action.
const (
	NoAction     Role = "no action"
	Requester    Role = "requester"
	NetworkTeam  Role = "network team"
	PlatformTeam Role = "platform team"
)

// Advice says what the reason of a condition means for a reader.
type Advice struct {
	// Owner is the role that has to act.
	Owner Role
	// Remedy says what the role does. The message of the condition has the particulars.
	Remedy string
	// in are the kinds of the objects that an object with the reason waits for. The cause is
	// looked for in them.
	in []string
}

// WaitsFor returns the kinds of the objects that an object with the reason waits for.
func (a Advice) WaitsFor() []string { return slices.Clone(a.in) }

// Advise returns the advice for an object of a kind, by the reason of its condition. An empty
// reason is that of an object that no function has reconciled. An unknown reason is one of a later
// version of a function, or of a network one that its IPAM has chosen; its message says what to do.
func Advise(kind, reason string) Advice {
	if advice, ok := advices[kind+"/"+reason]; ok {
		return advice
	}
	if advice, ok := advices[reason]; ok {
		return advice
	}
	if kind == kindNetwork {
		return Advice{Owner: NetworkTeam, Remedy: "Follow the message of the provider of networks."}
	}
	return Advice{Owner: PlatformTeam, Remedy: "Follow the message. This version of the program does not know the reason " + reason + "."}
}

// AdviseOverdue returns the advice for an object of a kind that has waited for longer than MaxWait, although
// its reason needs no action.
func AdviseOverdue(kind string) Advice {
	if kind == kindNetwork {
		return Advice{Owner: NetworkTeam, Remedy: "This lasts longer than expected. Check that the provider of networks that the message names has the request, and answers it."}
	}
	return Advice{Owner: PlatformTeam, Remedy: "This lasts longer than expected. Check what the message names, and the log of the function that reconciles this kind (docs/debug.md)."}
}

// IsKnown reports whether there is advice for the reason of an object of a kind.
func IsKnown(kind, reason string) bool {
	_, ofKind := advices[kind+"/"+reason]
	_, ofAll := advices[reason]
	return ofKind || ofAll
}

// Reasons returns every reason with advice, as the reason or as kind/reason, in alphabetical order.
// It leaves out the empty reason.
func Reasons() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(advices)), func(reason string) bool { return reason == "" })
}

// ConditionsPage is the address of the page with a section for each reason.
const ConditionsPage = "https://github.com/vitistack/stack/blob/main/docs/reference/conditions.md"

// PageOf returns the address of the section about a reason, and nothing for a reason without advice.
func PageOf(kind, reason string) string {
	if reason == "" || !IsKnown(kind, reason) {
		return ""
	}
	return ConditionsPage + "#" + strings.ToLower(reason)
}

// Kinds of the stack.
const (
	kindCluster       = "KubernetesCluster"
	kindMachine       = "Machine"
	kindProvider      = "MachineProvider"
	kindConfiguration = "NetworkConfiguration"
	kindAllocation    = "IPAllocation"
	kindNetwork       = "NetworkNamespace"
	kindBackup        = "EtcdBackup"
	kindTemplate      = "ClusterTemplate"
)

// Remedies that several reasons share.
const (
	continues     = "No action: this continues without you."
	unanswered    = "No action: the provider of networks works on it, or has not answered yet. If this lasts, the network team checks the provider."
	fixSpec       = "Change the field that the message names, and apply the manifest again."
	createNetwork = "Create the NetworkNamespace that the message names, or name an existing one in spec.networkNamespaceName."
	atBackend     = "Correct it at the backend as the message says. The stack checks again by itself."
	allowEndpoint = "Add the address to ALLOWED_ENDPOINTS of the function (config.env of the chart), or write an allowed one."
	grantRights   = "Add the namespace to secrets.namespaces of the chart, or bind the ClusterRole that the message names in it."
	isGood        = "No action: this is as it should be."
)

func on(owner Role, remedy string, in ...string) Advice {
	return Advice{Owner: owner, Remedy: remedy, in: in}
}

// advices has every reason that a function writes, or "kind/reason" where a reason means
// something else for a kind. A test compares it with the source of the functions.
var advices = map[string]Advice{
	"": on(NoAction, "No action: the object has just been created. If this lasts longer than a minute, the platform team checks that the functions and the Broker run (kubectl get ksvc -A)."),

	// Waits that end without an action, and what they wait for.
	"Asking":                        on(NoAction, unanswered),
	kindNetwork + "/Provisioning":   on(NoAction, unanswered),
	"Provisioning":                  on(NoAction, continues, kindProvider),
	"Claiming":                      on(NoAction, continues),
	"Releasing":                     on(NoAction, continues),
	"Starting":                      on(NoAction, continues, kindProvider),
	"Stopping":                      on(NoAction, continues, kindProvider),
	"Generating":                    on(NoAction, continues),
	"Retrying":                      on(NoAction, "No action: a request failed and is retried. The log of bootstrap-talos has the error."),
	"Deleting":                      on(NoAction, "No action: the message names what is still being deleted.", kindMachine, kindProvider),
	"InUse":                         on(NoAction, "Delete the objects that the message names, or wait until they are deleted.", kindMachine, kindConfiguration, kindAllocation, kindCluster),
	kindTemplate + "/InUse":         on(PlatformTeam, "Remove spec.templateRef of the clusters that the message names: they keep their fields. Or name another ClusterTemplate there."),
	"RollingOut":                    on(NoAction, continues, kindCluster),
	"WaveFinished":                  on(NoAction, "No action: the next wave starts at the time that the message names."),
	"WaitingForAddress":             on(NoAction, "See the NetworkConfiguration.", kindConfiguration, kindAllocation, kindNetwork),
	"WaitingForMAC":                 on(NoAction, "No action for the NetworkConfiguration of a Machine, which sets its MAC address. For any other, write macAddress of the interface."),
	"WaitingForMachineConfig":       on(NoAction, "See the KubernetesCluster.", kindCluster),
	"WaitingForEtcd":                on(NoAction, continues, kindMachine),
	kindMachine + "/WaitingForEtcd": on(NoAction, "See the KubernetesCluster. The annotation vitistack.io/force=true on the Machine deletes it without waiting for etcd.", kindCluster),
	"WaitingForMachines":            on(NoAction, "See the Machine.", kindMachine, kindNetwork),
	"WaitingForNode":                on(NoAction, "No action: the node starts, and the message names what Talos waits for.", kindMachine),
	"WaitingForNodes":               on(NoAction, "No action: the nodes start, and the message names what Talos waits for.", kindMachine),
	"WaitingForKubeconfig":          on(NoAction, continues, kindMachine),
	"WaitingForAddons":              on(NoAction, "No action: the add-on is applied as soon as the workload API accepts it. The message says what it answers."),
	"WaitingForAPI":                 on(NoAction, continues, kindMachine),
	"WaitingForCluster":             on(NoAction, "No action: the rotation starts when the cluster is Running.", kindMachine),
	"WaitingForVirtualAddress":      on(NoAction, "See the IPAllocation.", kindAllocation, kindNetwork),
	"RemovingNodes":                 on(NoAction, "No action: the message names the node, and what its removal waits for.", kindMachine),
	"ChangingNodes":                 on(NoAction, "No action: a node restarts what its new configuration changes."),
	"Rotating":                      on(NoAction, "No action: the condition AuthoritiesRotated has the progress."),
	"RotationStarted":               on(NoAction, continues),
	"Upgrading":                     on(NoAction, "No action: the message names the nodes, and what they wait for."),
	"ReplacingMachines":             on(NoAction, "No action: the message counts the machines that are still to be replaced.", kindMachine),
	"ResizingMachines":              on(NoAction, "No action: the message names the machines that are resized in place, and what they wait for.", kindMachine),
	"Held":                          on(NoAction, "No action: the hypervisor holds the machine configuration until the node has started with it."),
	"PVCPending":                    on(NoAction, "No action: the message names the disk that has no volume yet."),
	"SpecChanged":                   on(Requester, "Restart the machine to apply the change: write another value into spec.restartToken."),
	"NetworkNotReady":               on(NoAction, "See the NetworkNamespace.", kindNetwork),
	"BackupRunning":                 on(NoAction, continues),
	"ClusterNotReady":               on(NoAction, "See the KubernetesCluster.", kindCluster),
	"VMIDTaken":                     on(NoAction, "No action: the next VMID is tried. To avoid it, reserve VMIDs for the MachineProvider in spec.proxmox.vmidStart and vmidEnd."),
	"SourceThrottled":               on(NoAction, "No action: the provider is asked again after the delay that it requests."),
	"StatusUnknown":                 on(NoAction, "No action: the node does not answer at present, and is asked again."),
	"ProviderUnavailable":           on(PlatformTeam, "Check that the hypervisor runs and is reachable. The stack retries by itself.", kindProvider),
	"SourceUnavailable":             on(NetworkTeam, "Check that the provider of networks runs and is reachable. The stack retries by itself."),
	"KeaUnavailable":                on(NetworkTeam, "Check that the Kea server runs and is reachable. The stack retries by itself."),
	"Unreachable":                   on(PlatformTeam, "Check that the hypervisor runs and is reachable at spec.endpoint.url. The stack retries by itself."),

	// On purpose.
	"Stopped":           on(NoAction, "No action: the machine is off because spec.powerState is Stopped. Write Running to start it."),
	"Moved":             on(NoAction, "Its function adopts what exists, and then says whether it is Ready."),
	"Paused":            on(Requester, "Set spec.paused to false (kubectl viti resume) to continue."),
	"ReplacementPaused": on(Requester, "Set spec.upgrade.paused to false (kubectl viti resume --upgrade) to continue."),
	"MachinesUnhealthy": on(Requester, "See the message: it says when the machine is replaced, or why none is. Check the node with talosctl, and the hypervisor of its Machine.", kindMachine),
	"UpgradePaused":     on(Requester, "Set spec.upgrade.paused to false (kubectl viti resume --upgrade) to continue."),
	"RolloutPaused":     on(NoAction, "No action while the pause is intended. Set spec.rollout.paused of the ClusterTemplate to false to continue."),
	"ClustersPaused":    on(NoAction, "No action while the pause is intended. The rollout continues when the clusters that the message names are resumed (kubectl viti resume).", kindCluster),
	"Suspended":         on(Requester, "Set spec.suspend of the EtcdBackup to false to take snapshots again."),

	kindMachine + "/Paused":    on(PlatformTeam, "The virtual machine is paused at the hypervisor: resume it there, as the message says."),
	kindMachine + "/Suspended": on(PlatformTeam, "The virtual machine is suspended at the hypervisor: resume it there, as the message says."),

	// Mistakes that a requester corrects.
	"InvalidSpec":                          on(Requester, fixSpec),
	"InvalidTopology":                      on(Requester, fixSpec),
	"KubernetesVersionUnknown":             on(Requester, "Write a Kubernetes version that the message lists into spec.topology.version (kubectl viti upgrade CLUSTER lists them)."),
	"KubernetesVersionNotSupported":        on(Requester, "Write a Kubernetes version that the message lists, or a Talos version that runs it into spec.talos.version."),
	"TalosVersionUnknown":                  on(Requester, "Write a Talos version as in the message into spec.talos.version."),
	"KubernetesDowngrade":                  on(Requester, "Write the running version or a newer one: etcd has the data of the newer version."),
	"KubernetesUpgradePath":                on(Requester, "Upgrade one minor version after the other: write the version that the message names."),
	"TalosUpgradePath":                     on(Requester, "Write the Talos version that the message names into spec.talos.version."),
	"VersionSkew":                          on(Requester, "Write the version that the message names into the pool."),
	"TalosTooOld":                          on(Requester, "Upgrade Talos first: write a newer version into spec.talos.version."),
	"MachineRefused":                       on(Requester, fixSpec),
	"NetworkOverlap":                       on(Requester, "Write another prefix into the field of spec.networking that the message names."),
	"NoNetworkNamespace":                   on(Requester, createNetwork),
	"NetworkNamespaceNotFound":             on(Requester, createNetwork),
	"NetworkNamespaceAmbiguous":            on(Requester, "The namespace has several NetworkNamespaces: name one in spec.networkNamespaceName."),
	"NetworkConfigurationNotFound":         on(Requester, "Create the NetworkConfiguration that the message names, or name another in spec.networks."),
	"NetworkDeleting":                      on(Requester, "The network is being deleted: delete this object, and create it again in another network."),
	"TemplateNotFound":                     on(Requester, "Write small, medium, large or the name of a MachineClass into the template, or ask the platform team to create a MachineClass."),
	"ProviderNotFound":                     on(Requester, "Name an existing MachineProvider in providerRef (kubectl get machineproviders)."),
	"ClusterTemplateNotFound":              on(Requester, "Write the name of an existing ClusterTemplate into spec.templateRef (kubectl get clustertemplates), or ask the platform team to create it."),
	"ClusterTemplateRejected":              on(Requester, "Change the field of the cluster that the message names, or ask the platform team to change the ClusterTemplate."),
	"RolloutStopped":                       on(PlatformTeam, "Correct the cluster that the message names, or change the ClusterTemplate: then the rollout continues.", kindCluster),
	"PatchNotFound":                        on(Requester, "Create the ConfigMap that the message names, or remove it from the patches."),
	"InvalidPatch":                         on(Requester, "Correct the patch in the ConfigMap that the message names."),
	"InvalidConfiguration":                 on(Requester, "Correct the patch or field that the message names: Talos does not accept the configuration."),
	"VirtualAddressFailed":                 on(Requester, "Write what the message says into spec.controlPlaneEndpoint.", kindAllocation),
	"WaitingForEndpoint":                   on(Requester, "Free the address of the endpoint, point its load balancer at the control planes, or correct the MAC address, as the message says."),
	"NameTaken":                            on(Requester, "Delete the object that the message names, or give this one another name."),
	"VirtualMachineNameTaken":              on(Requester, "Delete the virtual machine that the message names, or give the Machine another name."),
	"AllocationNameTaken":                  on(Requester, "Delete the IPAllocation that the message names."),
	"MachineProtected":                     on(Requester, "Set spec.protected of the Machine that the message names to false (kubectl viti unprotect), or keep the Machine: raise replicas, or remove the annotation vitistack.io/remove."),
	"Protected":                            on(Requester, "Set spec.protected to false (kubectl viti unprotect), and the deletion continues."),
	"DrainBlocked":                         on(Requester, "Let the pods that the message names be evicted, set drainTimeout of the pool, or force the removal with the annotation vitistack.io/force=true on the Machine."),
	"PendingApproval":                      on(Requester, "Have the work order approved in the ticketing system."),
	"ApprovalRejected":                     on(Requester, "Change the topology to request approval again. The message says who rejected it, and why."),
	"ApprovalPolicyUnknown":                on(PlatformTeam, "Write creation or growth into the annotation vitistack.io/approval of the namespace."),
	"ResizeFailed":                         on(Requester, "Repair the Machine that the message names, or let its pods be evicted. Or take back the change of template, or have the Machine replaced by its annotation vitistack.io/remove=true.", kindMachine),
	"UpgradeFailed":                        on(Requester, "Correct what the message names, then write another version, or pause and resume the upgrade to try again."),
	"UpgradeRefused":                       on(Requester, "Correct what the message names, then write another version, or pause and resume the upgrade to try again."),
	"AddonRefused":                         on(Requester, "Correct the manifest that the message names, or change the policy in the workload cluster that rejects it. The message quotes the answer."),
	"AddonNotFound":                        on(Requester, "Create the ConfigMap that the message names, correct the URL, push the OCI artifact or make it public, or remove the add-on from spec.addons."),
	"AddonInvalid":                         on(Requester, "Correct the manifest at the place that the message names, or the OCI artifact."),
	"AddonNotAllowed":                      on(Requester, "Put the manifests into a ConfigMap, or ask the platform team to add their host to addons.allowedHosts of the chart."),
	"AddonUnavailable":                     on(PlatformTeam, "Check that the host in the message answers, and that bootstrap-talos reaches it (networkPolicy.addons of the chart)."),
	"AddressTaken":                         on(Requester, "Request another address, or none. The message names the holder of this one."),
	"AddressInUse":                         on(Requester, "Request the address that the interface has, or delete the Machine that the message names first."),
	"AddressOutsidePool":                   on(Requester, "Request an address of the pool that the message names, or none."),
	kindAllocation + "/InUse":              on(NoAction, "The deletion completes when the NetworkConfiguration no longer needs the address: delete its Machine, or wait.", kindConfiguration),
	kindAllocation + "/AddressTaken":       on(Requester, "Delete the IPAllocation and create it with another address, or release the address: the message names its holder."),
	kindAllocation + "/AddressOutsidePool": on(Requester, "Delete the IPAllocation and create it with an address of the pool, or have the pool of the NetworkNamespace changed."),
	"OutsidePool":                          on(NoAction, "No action: the address stays allocated, although the pool has changed. The next allocation is from the pool."),
	"Lapsed":                               on(Requester, "Delete the IPAllocation that has expired, and create it again if the address is needed."),
	"DuplicateMACAddress":                  on(Requester, "Give the interface another MAC address, or delete the other interface that the message names."),
	"VLANMismatch":                         on(Requester, "Leave spec.vlan of the NetworkConfiguration out, or write the VLAN of the network."),
	"IPv4NotServed":                        on(Requester, "Request no IPv4 address, or use a network that has IPv4."),
	"IPv6NotServed":                        on(Requester, "Request no IPv6 address, or use a network that has IPv6."),
	"NoInterfaces":                         on(Requester, "Write the interfaces into spec.networkInterfaces."),
	"ProviderMismatch":                     on(Requester, "Leave spec.provider of the NetworkConfiguration out."),
	"ProviderNotExplicit":                  on(Requester, "Write the provider that the message names into the NetworkConfiguration."),
	"NetworkNotStatic":                     on(NetworkTeam, "Name a network of type static in spec.networkNamespaceName."),
	"NetworkFailed":                        on(Requester, "See the NetworkConfiguration.", kindConfiguration, kindAllocation, kindNetwork),
	"MachineProviderNotFound":              on(Requester, "Name an existing MachineProvider in spec.providerRef (kubectl get machineproviders)."),
	"MachineProviderAmbiguous":             on(Requester, "Name a MachineProvider in spec.providerRef, or have the platform team set spec.default of one of them."),
	"MachineProviderNotAllowed":            on(Requester, "Name a MachineProvider that allows the namespace, or ask the platform team to add the namespace to its spec.allowedNamespaces."),
	"MachineProviderDeleting":              on(Requester, "Name another MachineProvider in spec.providerRef: this one is being deleted."),
	"NoMachineProvider":                    on(PlatformTeam, "Create a MachineProvider."),
	"MachineProviderNotSupported":          on(PlatformTeam, "Give the MachineProvider a type that this installation supports, or name another one."),
	"CloudInitSecretNotFound":              on(Requester, "Create the Secret that the message names, or add the key to it."),
	"CloudInitSecretNotAllowed":            on(Requester, "Label the Secret vitistack.io/cloud-init=true, or name another."),
	"SnippetNotAllowed":                    on(Requester, "Name a snippet that proxmox.allowedSnippets of the MachineProvider lists, or ask the platform team to list it."),
	"DiskCannotShrink":                     on(Requester, "Write the present size of the disk, or a larger one."),
	"DiskCannotGrow":                       on(Requester, "Write the present size of the disk, or have the platform team set allowVolumeExpansion of its StorageClass."),
	"StorageClassNotFound":                 on(Requester, "Name a StorageClass of the message, or have the platform team create this one."),
	"ImageNotAllowed":                      on(Requester, "Name an image on an allowed host, or ask the platform team to add its host to images.allowedHosts of the chart."),
	"ImageNotFound":                        on(Requester, "Name an image that exists: the message says which."),
	"ImageNotSupported":                    on(Requester, "Name an image of a kind that the hypervisor supports: the message says which."),
	"ImageImportFailed":                    on(Requester, "Name an image that can be imported. The message has the error of the hypervisor."),
	"ImagePullFailed":                      on(PlatformTeam, "Have the hypervisor reach the registry. The message has its error."),
	"NodeNotFound":                         on(Requester, "Write a host that the message lists into spec.nodeName, or leave it out."),
	"NotSupported":                         on(Requester, fixSpec),
	"TooManyDisks":                         on(Requester, "Write fewer disks: the message says how many the hypervisor supports."),
	"InsufficientResources":                on(PlatformTeam, "Add hosts, or remove machines. The requester can also ask for less memory or fewer CPUs."),
	"CrashLoop":                            on(Requester, "Look at the console of the virtual machine: its guest ends again and again. The message has the error of the hypervisor."),
	"VMFailed":                             on(PlatformTeam, "Look at the virtual machine at the hypervisor. The message has its error."),
	"DiskNotFound":                         on(PlatformTeam, "Restore the disk at the hypervisor, or delete the Machine and create it again."),
	"AddressMismatch":                      on(Requester, "Have the guest use the addresses of its network configuration: it reports others."),
	"Locked":                               on(PlatformTeam, "Wait for the backup, snapshot or migration. If none of them runs, follow the message."),
	"MachineOutdated":                      on(Requester, "Delete the Machine that the message names: an earlier version created it, and its node has no configuration yet."),
	"WrongNode":                            on(PlatformTeam, "Remove the other machine that has the address of the node. The message names both."),
	"ForeignNode":                          on(PlatformTeam, "Erase the disk of the node, which belongs to another cluster, or free its address. The message names both."),
	"ClockSkew":                            on(PlatformTeam, "Let the node that the message names reach a time server."),
	"ClusterNotFound":                      on(Requester, "Create the KubernetesCluster, or correct spec.clusterName."),
	"CredentialsNotFound":                  on(Requester, "Create the Secret that the message names."),
	"CredentialsIncomplete":                on(Requester, "Add the keys that the message names to the Secret."),
	"InvalidSchedule":                      on(Requester, "Correct spec.schedule as the message says, for example 0 2 * * *."),
	"InvalidEndpoint":                      on(Requester, "Correct spec.storageLocation.endpoint as the message says."),
	"InvalidPath":                          on(Requester, "Correct spec.storageLocation.path as the message says."),
	"StorageRefused":                       on(Requester, "Check the bucket, and the rights of the key in the Secret. The message has the answer of the object store."),
	"BackupFailed":                         on(Requester, "Correct what the message says. The snapshot is tried again every minute.", kindCluster),
	"SnapshotDamaged":                      on(PlatformTeam, "Check the storage, and the disk of the control plane. The snapshot is tried again every minute."),
	"TalosconfigDamaged":                   on(PlatformTeam, "Delete the Secret with the talosconfig, so that the stack creates it again."),

	// Networks.
	"NotInPool":              on(Requester, "Choose a segment that the message lists, or ask the platform team to extend a NetworkPool."),
	"BridgeNotAllowed":       on(Requester, "Remove spec.bridge of the NetworkConfiguration, or ask the platform team to list the bridge with the VLAN in a NetworkPool."),
	"SegmentOverlap":         on(NetworkTeam, "Write a prefix and a VLAN that no other network has. The message names the network that has them."),
	"InvalidPool":            on(NetworkTeam, "Correct spec.ipAllocation.static of the NetworkNamespace as the message says."),
	"NoUsableAddress":        on(NetworkTeam, "Write a larger prefix or pool into the NetworkNamespace."),
	"PoolExhausted":          on(NetworkTeam, "Delete unused machines or addresses, or enlarge the pool of the NetworkNamespace."),
	"SegmentChanged":         on(Requester, "Write back the segment that the message names, or delete the network and create it again."),
	"RequestChanged":         on(Requester, "Change the spec back, or delete the network and create it again: a segment is never exchanged."),
	"SegmentGone":            on(NetworkTeam, "Restore the segment at the provider, or delete the network and create it again."),
	"ProviderNotConfigured":  on(PlatformTeam, "Set the variable that the message names on provision-network, or have the requester choose another provider."),
	"ProviderMisconfigured":  on(PlatformTeam, "Correct the variable that the message names on provision-network."),
	"ProviderChanged":        on(Requester, "Write back the provider that has the segment, or delete the network and create it again."),
	"SourceUnauthorized":     on(PlatformTeam, "Correct the token of the provider of networks."),
	"SourceUntrusted":        on(PlatformTeam, "Add the authority of the provider's certificate, as the message says."),
	"SourceNotFound":         on(PlatformTeam, "Correct the address of the provider of networks."),
	"SourceNotPrepared":      on(NetworkTeam, "Create the custom field at the provider that the message names."),
	"SourceNotAllowed":       on(PlatformTeam, allowEndpoint),
	"SourceRejected":         on(NetworkTeam, atBackend),
	"SourceConflict":         on(NetworkTeam, atBackend),
	"SourceFailed":           on(NetworkTeam, atBackend),
	"SourceUnexpectedAnswer": on(NetworkTeam, atBackend),
	"SourceChanged":          on(NetworkTeam, atBackend),
	"TooManyObjects":         on(NetworkTeam, atBackend),
	"NoParentPrefix":         on(NetworkTeam, "Create a parent prefix at the provider that matches the request, or have the requester change it."),
	"ParentPrefixesFull":     on(NetworkTeam, "Add a parent prefix at the provider, or release prefixes of the present ones."),
	"NoVLANGroup":            on(NetworkTeam, "Create the VLAN group at the provider, or have the requester name another."),
	"VLANGroupFull":          on(NetworkTeam, "Release VLANs of the group at the provider, or add a group."),

	// DHCP.
	"ForeignReservation":  on(NetworkTeam, "Delete the reservation in Kea that the message names, or have the requester use another address."),
	"SubnetMissing":       on(NetworkTeam, "Add the subnet of the network to Kea, as the message says."),
	"SubnetOverlap":       on(NetworkTeam, "Correct the subnets of Kea: the message names the overlapping ones."),
	"SubnetNotAllowed":    on(PlatformTeam, "Allow kea-reserve to use the subnet, as the message says."),
	"NoIPv4Prefix":        on(NetworkTeam, "Use a network with an IPv4 prefix: Kea reserves IPv4 addresses."),
	"KeaNotConfigured":    on(PlatformTeam, "Set the address of Kea on kea-reserve, as the message says."),
	"KeaNotAllowed":       on(PlatformTeam, allowEndpoint),
	"KeaUnauthorized":     on(PlatformTeam, "Correct the credentials of Kea."),
	"KeaUntrusted":        on(PlatformTeam, "Correct the certificates of Kea, as the message says."),
	"KeaUnexpectedAnswer": on(NetworkTeam, atBackend),
	"KeaUnsupported":      on(NetworkTeam, "Load the hook library in Kea that the message names."),
	"KeaNotPersisted":     on(NetworkTeam, "Have Kea write its configuration: the message says what prevents it."),
	"KeaRefused":          on(NetworkTeam, "Correct Kea's configuration. The message has its answer."),

	// Hypervisors.
	"KubeVirtApiError":      on(PlatformTeam, "Correct what the error of KubeVirt in the message names."),
	"KubeVirtNotInstalled":  on(PlatformTeam, "Install KubeVirt in the cluster of the MachineProvider."),
	"ProxmoxApiError":       on(PlatformTeam, "Correct what the error of Proxmox VE in the message names."),
	"VersionNotSupported":   on(PlatformTeam, "Upgrade the hypervisor to a version that the message names."),
	"CredentialsMissing":    on(PlatformTeam, "Create the Secret that the MachineProvider names, with the keys that the message lists."),
	"CredentialsInvalid":    on(PlatformTeam, "Correct the Secret of the MachineProvider."),
	"CredentialsNotAllowed": on(PlatformTeam, "Move the Secret of the MachineProvider into the namespace of the stack, or add its namespace to credentials.namespaces of the chart."),
	"EndpointNotAllowed":    on(PlatformTeam, allowEndpoint),
	"EndpointUntrusted":     on(PlatformTeam, "Add the authority of the certificate to spec.endpoint.caBundle of the MachineProvider, or to ca.crt of its Secret."),
	"SecretsNotAllowed":     on(PlatformTeam, grantRights),
	"PermissionDenied":      on(PlatformTeam, "Grant the privilege in the message to the user of the MachineProvider."),
	"PrivilegesMissing":     on(PlatformTeam, "Grant the privileges in the message to the user of the MachineProvider."),
	"BridgeNotFound":        on(PlatformTeam, "Create the bridge on the host, or correct it: the message says which exist."),
	"VMIDsExhausted":        on(PlatformTeam, "Widen spec.proxmox.vmidStart and vmidEnd of the MachineProvider."),
	"VMIDRangeInvalid":      on(PlatformTeam, "Correct spec.proxmox.vmidStart and vmidEnd of the MachineProvider."),
	"FirewallDisabled":      on(PlatformTeam, "Enable the firewall of the datacenter as the message says, so that machines send from their own MAC addresses only."),
	"FirewallUnknown":       on(PlatformTeam, "Grant the privilege in the message, so that the firewall can be checked."),
	"OrphansFound":          on(PlatformTeam, "Check that the objects in the message are unused, then remove them at the backend with the command in the message."),
	"NotListed":             on(PlatformTeam, "Correct what prevents the list: orphans cannot be looked for."),

	// Clusters.
	"ClusterUnreachable": on(PlatformTeam, "Check the Machines of the cluster, their hypervisor, and the network to the endpoint. The cluster continues once its API answers.", kindMachine),
	"EtcdUnavailable":    on(PlatformTeam, "Bring a member of etcd back, restore a snapshot, or force the removal."),
	"EtcdLost":           on(PlatformTeam, "Restore a snapshot of etcd (functions/etcd-backup/README.md#restoring), or delete the cluster and create it again."),
	"QuorumAtRisk":       on(PlatformTeam, "Wait for the replacement of the control plane, bring a member back, or force the removal."),
	"NodeReset":          on(PlatformTeam, "Bring another control plane back, or restore a snapshot. If all lost their disks, remove the annotation vitistack.io/os-installed from their Machines."),
	"KeysLost":           on(PlatformTeam, "Restore the Secret that the message names (docs/backup.md#keys-of-one-cluster), or delete the cluster and create it again."),
	"RotationDamaged":    on(PlatformTeam, "Write the phase in status.authorities.phase into the annotation of the Secret that the message names."),
	"RotationRefused":    on(PlatformTeam, "Correct the node that the message quotes. The request is retried."),
	"MachinesSkipped":    on(PlatformTeam, "Delete the machines that the message names at their provider: the deletion of the cluster was forced."),
	"NoVolume":           on(PlatformTeam, "Mount a volume into etcd-backup and set BACKUP_PATH, or have the requester use type s3."),
	"NotReady":           on(PlatformTeam, "Look at the kubelet of the node, and at its log (talosctl dmesg)."),
	"Rebooting":          on(NoAction, "No action: one node after the other reboots with the new configuration."),
	"Staged":             on(Requester, "Reboot the nodes that the message names: the new configuration applies at their next boot."),
	"NewNodeNeeded":      on(Requester, "Wait while MachinesCurrent is False: the machine is replaced. Otherwise, set the annotation vitistack.io/remove=true on the Machine that the message names, or take back the patch."),
	"RebootNeeded":       on(Requester, "Write Reboot into spec.talos.configChanges to reboot one node after the other, or reboot the nodes that the message names."),

	"Accepting": on(NoAction, continues), "Issuing": on(NoAction, continues), "RemovingKubernetes": on(NoAction, continues),
	"RemovingTalos": on(NoAction, continues), "Finishing": on(NoAction, continues),

	// As it should be.
	"ClustersCurrent": on(NoAction, isGood),
	"Allocated":       on(NoAction, isGood), "Approved": on(NoAction, isGood), "BackupTaken": on(NoAction, isGood), "Bootstrapped": on(NoAction, isGood),
	"ClusterRunning": on(NoAction, isGood), "Completed": on(NoAction, isGood), "ConfigApplied": on(NoAction, isGood), "ConfigCurrent": on(NoAction, isGood),
	"CredentialsCreated": on(NoAction, isGood), "EtcdHealthy": on(NoAction, isGood), "Healthy": on(NoAction, isGood), "InStep": on(NoAction, isGood),
	"MACFilter": on(NoAction, isGood), "MachineRunning": on(NoAction, isGood), "MachinesCreated": on(NoAction, isGood), "MachinesRunning": on(NoAction, isGood),
	"NetworkAvailable": on(NoAction, isGood), "NetworkConfigured": on(NoAction, isGood), "NodesReady": on(NoAction, isGood), "NoOrphans": on(NoAction, isGood),
	"PVCBound": on(NoAction, isGood), "PrivilegesGranted": on(NoAction, isGood), "Provisioned": on(NoAction, isGood), "Released": on(NoAction, isGood),
	"Removed": on(NoAction, isGood), "RotationFinished": on(NoAction, isGood), "Scheduled": on(NoAction, isGood), "TopologyValid": on(NoAction, isGood),
	"VMCreated": on(NoAction, isGood), "VersionsCurrent": on(NoAction, isGood), "MachinesCurrent": on(NoAction, isGood), "MachinesHealthy": on(NoAction, isGood),
}
