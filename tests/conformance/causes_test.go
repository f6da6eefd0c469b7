package conformance

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/backend"
)

// causes has every reason that a function writes, by what it is about:
//
//	backend   the backend does not answer, or cannot be used. Only these count against the health of a backend.
//	user      a requester or the network team changes an object, or deletes one
//	platform  the platform team changes the installation, a node or an image, although the backend answers
//	wait      nothing is wrong, or the object continues by itself
var causes = map[string]string{
	"backend": `KeaNotAllowed KeaNotPersisted KeaUnauthorized KeaUnavailable KeaUnexpectedAnswer KeaUnsupported KeaUntrusted
		SourceNotAllowed SourceNotFound SourceUnauthorized SourceUnavailable SourceUnexpectedAnswer SourceUntrusted
		CredentialsInvalid EndpointUntrusted KubeVirtNotInstalled ProviderUnavailable Unreachable
		ClusterUnreachable`,
	"user": `AddressInUse AddressMismatch AddressOutsidePool AddressTaken AllocationNameTaken ApprovalPolicyUnknown ApprovalRejected
		BridgeNotAllowed BridgeNotFound CloudInitSecretNotAllowed CloudInitSecretNotFound ClusterNotFound CredentialsIncomplete CredentialsNotFound
		DiskCannotGrow DiskCannotShrink DiskNotFound DrainBlocked DuplicateMACAddress ForeignNode ForeignReservation IPv4NotServed IPv6NotServed
		ImageImportFailed ImageNotAllowed ImageNotFound ImageNotSupported ImagePullFailed InvalidConfiguration InvalidEndpoint InvalidPatch InvalidPath
		InvalidPool InvalidSchedule InvalidSpec InvalidTopology KeysLost KubernetesDowngrade KubernetesUpgradePath KubernetesVersionNotSupported
		KubernetesVersionUnknown MachineOutdated MachineProtected MachineProviderAmbiguous MachineProviderNotAllowed MachineProviderNotFound MachineRefused MachineRunning
		NameTaken NetworkConfigurationNotFound NetworkDeleting NetworkNamespaceAmbiguous NetworkNamespaceNotFound NetworkNotStatic NetworkOverlap
		NoIPv4Prefix NoInterfaces NoMachineProvider NoNetworkNamespace NoUsableAddress NoVolume NotInPool OutsidePool ParentPrefixesFull
		NoParentPrefix NoVLANGroup PatchNotFound PoolExhausted Protected ProviderChanged ProviderMismatch ProviderNotExplicit ProviderNotFound RequestChanged
		SegmentChanged SegmentOverlap SnippetNotAllowed SourceRejected SpecChanged StorageClassNotFound StorageRefused SubnetMissing
		SubnetNotAllowed SubnetOverlap TalosTooOld TalosUpgradePath TalosVersionUnknown TemplateNotFound TooManyDisks TooManyObjects
		UpgradeRefused VLANGroupFull VLANMismatch VersionSkew VirtualMachineNameTaken`,
	"platform": `AddonRefused BackupFailed ClockSkew CrashLoop CredentialsMissing CredentialsNotAllowed EndpointNotAllowed EtcdLost
		EtcdUnavailable FirewallDisabled FirewallUnknown InsufficientResources KeaNotConfigured KeaRefused KubeVirtApiError Locked
		MachineProviderNotSupported NetworkFailed NodeNotFound NodeReset NotListed NotSupported PermissionDenied ProviderMisconfigured
		ProviderNotConfigured ProxmoxApiError QuorumAtRisk RotationDamaged RotationRefused SecretsNotAllowed SegmentGone SnapshotDamaged
		SourceChanged SourceConflict SourceFailed SourceNotPrepared SourceThrottled TalosconfigDamaged UpgradeFailed VMFailed VMIDRangeInvalid VMIDTaken
		VMIDsExhausted VersionNotSupported VirtualAddressFailed WrongNode`,
	"wait": `Allocated Approved Bootstrapped ChangingNodes ClusterNotReady ClusterRunning Completed ConfigApplied ConfigCurrent
		CredentialsCreated Deleting EtcdHealthy Generating Healthy Held InStep InUse Lapsed MACFilter MachineProviderDeleting MachinesCreated MachinesRunning
		NetworkAvailable NetworkConfigured NetworkNotReady NodesReady PVCBound PVCPending Paused PendingApproval Provisioned Provisioning Released
		Releasing Removed RemovingNodes Retrying Rotating Scheduled Starting StatusUnknown Stopped Stopping Suspended TopologyValid
		UpgradePaused Upgrading VMCreated VersionsCurrent WaitingForAPI WaitingForAddress WaitingForCluster WaitingForEndpoint WaitingForEtcd
		WaitingForKubeconfig WaitingForMAC WaitingForMachineConfig WaitingForMachines WaitingForNode WaitingForNodes WaitingForVirtualAddress`,
}

// TestReasonsHaveACause compares the reasons in the source of the functions with the table, and the table with the reasons that
// count against the health of a backend. A reason of a user's mistake among these would make a backend unhealthy.
func TestReasonsHaveACause(t *testing.T) {
	t.Parallel()
	causeOf := map[string]string{}
	for cause, reasons := range causes {
		for reason := range strings.FieldsSeq(reasons) {
			if causeOf[reason] != "" {
				t.Errorf("%s has two causes", reason)
			}
			causeOf[reason] = cause
		}
	}
	written := map[string]bool{}
	for _, folder := range []string{"provision-network", "allocate-ip", "kea-reserve", "create-vm", "bootstrap-talos", "etcd-backup", "internal/network", "internal/reconcile"} {
		maps.Copy(written, sources(t, "functions/"+folder).reasons()) // one name may mean another reason in another function
	}
	for reason := range written {
		if causeOf[reason] == "" {
			t.Errorf("a function writes the reason %s: add it to causes, and to the outages of apis/backend if the backend is the cause", reason)
		}
	}
	for reason, cause := range causeOf {
		if !written[reason] {
			t.Errorf("no function writes %s", reason)
		}
		if _, outage := backend.OutageOf(reason); outage != (cause == "backend") {
			t.Errorf("%s is about %s: apis/backend counts it as an outage: %t", reason, cause, outage)
		}
	}
	for _, reason := range backend.OutageReasons() {
		if !slices.Contains(strings.Fields(causes["backend"]), reason) {
			t.Errorf("apis/backend has the outage %s, which no function writes", reason)
		}
	}
}
