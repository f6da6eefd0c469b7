package v1alpha1

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
)

// A node gets its machine configuration through the hypervisor, because another host on
// the network could otherwise request the keys in it. bootstrap-talos writes the
// configuration into the Secret that spec.cloudInit.secretRef of the Machine names, and
// create-vm passes it to the virtual machine as user data. Both delete it when the node
// has it on its own disk.
const (
	// AnnotationMachineConfig is set on a Machine while its Secret has a machine
	// configuration that the node has not installed. Its value is the SHA-256 of the
	// configuration.
	AnnotationMachineConfig = "vitistack.io/machine-config"
	// AnnotationInstalled, with the value true, is set on a Machine while its node has
	// its configuration on its disk.
	AnnotationInstalled = "vitistack.io/os-installed"
	// AnnotationNodeConfig of a Machine says what its node was installed with, of the parts of a machine
	// configuration that Talos applies to a new node only. Its value is a JSON object with a digest of each
	// part: see package apis/cluster/nodeconfig.
	AnnotationNodeConfig = "vitistack.io/node-config"
	// MachineConfigKey is the key of the configuration in its Secret.
	MachineConfigKey = "userdata"
)

const machineConfigHeld = "the hypervisor has the machine configuration with the digest "

// MachineConfigHeldMessage is the message of the condition MachineConfigRemoved while the
// hypervisor has the configuration with a digest.
func MachineConfigHeldMessage(digest string) string { return machineConfigHeld + digest }

// MachineConfigSecret is the name of the Secret with the machine configuration of a node,
// or empty if the Machine is not a node of a cluster or was created without one.
func (m *Machine) MachineConfigSecret() string {
	if m.Labels[LabelClusterName] == "" || m.Spec.CloudInit == nil || m.Spec.CloudInit.SecretRef == nil ||
		m.Spec.CloudInit.SecretRef.Name != MachineConfigSecretName(m.Name) {
		return ""
	}
	return m.Spec.CloudInit.SecretRef.Name
}

// MachineConfigSecretName is the name of the Secret with the machine configuration of the
// node that a Machine of a name becomes.
func MachineConfigSecretName(machine string) string { return fmt.Sprintf("%s-machine-config", machine) }

// Installed reports whether the node of a Machine has its configuration on its disk.
func (m *Machine) Installed() bool { return m.Annotations[AnnotationInstalled] == "true" }

// HoldsMachineConfig reports whether the hypervisor has the configuration that the
// annotation names.
func (m *Machine) HoldsMachineConfig() bool {
	c := meta.FindStatusCondition(m.Status.Conditions, ConditionMachineConfigRemoved)
	digest := m.Annotations[AnnotationMachineConfig]
	return c != nil && digest != "" && strings.TrimPrefix(c.Message, machineConfigHeld) == digest
}
