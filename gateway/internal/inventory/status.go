package inventory

import (
	"cmp"
	"slices"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/cluster/template"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Statuses returns the possible statuses of a topic's items.
func Statuses(topic Topic) []string {
	switch topic {
	case TopicClusters:
		return []string{StatusActive, StatusInactive, StatusFailed}
	case TopicOperators:
		return []string{Healthy, Degraded, Unhealthy, Unreachable}
	default:
		return []string{StatusPending, StatusRunning, StatusFailed, StatusUnknown}
	}
}

// Values returns the possible values of the attributes of a topic's items that have few.
func Values(topic Topic) map[string][]string {
	var hypervisors []string
	for _, kind := range backend.In(backend.LayerMachine) {
		hypervisors = append(hypervisors, kind.Name)
	}
	slices.Sort(hypervisors)
	values := map[string][]string{"status": Statuses(topic)}
	switch topic {
	case TopicNetworks:
		values["allocation"] = []string{string(v1alpha2.AllocationStatic), string(v1alpha2.AllocationDHCP)}
	case TopicAllocations:
		values["method"] = []string{string(v1alpha2.AllocationStatic), string(v1alpha2.AllocationDHCP)}
		values["family"] = []string{string(v1alpha2.IPv4), string(v1alpha2.IPv6)}
	case TopicMachines:
		values["operator"] = append(hypervisors, "")
	case TopicProviders, TopicHosts:
		values["type"] = hypervisors
	case TopicClusters:
		values["type"] = []string{"kubernetes", backend.Talos, string(v1alpha1.ProviderProxmox)}
		for _, state := range template.States {
			values["rollout"] = append(values["rollout"], string(state))
		}
		values["rollout"] = append(values["rollout"], "")
	}
	return values
}

// machineStatus returns the status of a machine. Its phase does not change when its virtual machine fails; a condition shows that.
func machineStatus(m *Machine) string {
	phase := v1alpha1.MachinePhase(m.Phase)
	if m.VMFailed && phase != v1alpha1.MachineDeleting {
		return StatusFailed
	}
	switch phase {
	case v1alpha1.MachinePending, v1alpha1.MachineCreating:
		return StatusPending
	case v1alpha1.MachineRunning:
		return StatusRunning
	case v1alpha1.MachineFailed:
		return StatusFailed
	default:
		return StatusUnknown
	}
}

// The phase of a cluster does not change when something fails; its condition Ready shows that.
var (
	// broken are the reasons of a cluster in any phase that needs an intervention.
	broken = []string{"UpgradeFailed", "ResizeFailed", "UpgradeRefused", "EtcdLost", "EtcdUnavailable", "KeysLost"}
	// invalid are the reasons of an invalid spec.
	invalid = []string{
		"InvalidTopology", "NetworkOverlap", "FamilyMismatch", "PrefixSize", "KubernetesVersionUnknown", "KubernetesVersionNotSupported", "TalosVersionUnknown", "MachineRefused",
		"TemplateNotFound", "ProviderNotFound", "PatchNotFound", "InvalidPatch", "InvalidConfiguration", "ConfigRefused",
		"AddonNotFound", "AddonInvalid", "AddonNotAllowed",
	}
)

// reasonClusterUnreachable is the reason of a cluster that has been running and does not answer. Its phase says that it is up.
const reasonClusterUnreachable = "ClusterUnreachable"

// clusterStatus returns the status of a cluster from its phase and reason.
func clusterStatus(phase, reason string) string {
	p := v1alpha1.ClusterPhase(phase)
	switch up := p == v1alpha1.ClusterRunning || p == v1alpha1.ClusterUpdating; {
	case p == v1alpha1.ClusterFailed, slices.Contains(broken, reason), !up && slices.Contains(invalid, reason):
		return StatusFailed
	case reason == reasonClusterUnreachable:
		return StatusInactive
	case up:
		return StatusActive
	default:
		return StatusInactive
	}
}

// clusterType returns the type of a cluster from its provider.
func clusterType(provider string) string {
	switch provider {
	case backend.Talos, string(v1alpha1.ProviderProxmox):
		return provider
	default:
		return "kubernetes"
	}
}

// statusOfPhase maps the phases of each topic to statuses.
var statusOfPhase = map[Topic]map[string]string{
	TopicNetworks: {
		string(v1alpha2.ProvisioningReady): StatusRunning, string(v1alpha2.ProvisioningError): StatusFailed,
		string(v1alpha2.ProvisioningDeleting): StatusUnknown,
	},
	TopicAddresses: {
		string(v1alpha1.NetworkConfigurationReady): StatusRunning, string(v1alpha1.NetworkConfigurationError): StatusFailed,
		string(v1alpha1.NetworkConfigurationDeleting): StatusUnknown,
	},
	TopicAllocations: {
		string(v1alpha2.IPAllocationAllocated): StatusRunning, string(v1alpha2.IPAllocationError): StatusFailed,
		string(v1alpha2.IPAllocationReleased): StatusUnknown,
	},
	TopicBackups: {
		string(v1alpha1.EtcdBackupScheduled): StatusRunning, string(v1alpha1.EtcdBackupRunning): StatusRunning,
		string(v1alpha1.EtcdBackupCompleted): StatusRunning, string(v1alpha1.EtcdBackupFailed): StatusFailed,
	},
	TopicProviders: {
		string(v1alpha1.ProviderReady): StatusRunning, string(v1alpha1.ProviderFailed): StatusFailed,
		string(v1alpha1.ProviderOffline): StatusUnknown,
	},
}

// phaseStatus returns the status of a topic's item from its phase. A phase without an entry is pending.
func phaseStatus(topic Topic, phase string) string {
	return cmp.Or(statusOfPhase[topic][phase], StatusPending)
}

func readyStatus(ready bool) string {
	if ready {
		return StatusRunning
	}
	return StatusFailed
}

// vmStatus returns the status of a virtual machine from KubeVirt's printable status.
func vmStatus(phase string) string {
	switch phase {
	case "Running":
		return StatusRunning
	case "Starting", "Provisioning", "WaitingForVolumeBinding", "Migrating":
		return StatusPending
	case "CrashLoopBackOff", "ErrorUnschedulable", "ErrImagePull", "ImagePullBackOff", "ErrorPvcNotFound", "DataVolumeError":
		return StatusFailed
	default:
		return StatusUnknown
	}
}
