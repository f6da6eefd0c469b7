package v1alpha1

import "fmt"

// RootDisk is the name of the disk of every MachineTemplate. The machine boots from it.
const RootDisk = "root"

// MachineTemplate is a size that spec.template of a Machine, or of a pool of a
// KubernetesCluster, may name. Fields of the spec override it. A machine has one socket, and
// one thread for each core, unless its spec says otherwise.
//
// +kubebuilder:object:generate=false
type MachineTemplate struct {
	Name  string
	Cores int32
	// Memory is the memory, and Disk the size of RootDisk.
	Memory, Disk Size
}

// MachineTemplates returns all templates, the smallest first.
func MachineTemplates() []MachineTemplate {
	return []MachineTemplate{
		{Name: "small", Cores: 1, Memory: "2Gi", Disk: "20Gi"},
		{Name: "medium", Cores: 2, Memory: "4Gi", Disk: "40Gi"},
		{Name: "large", Cores: 4, Memory: "8Gi", Disk: "80Gi"},
	}
}

// FindMachineTemplate returns the template with a name. The error says which names exist.
func FindMachineTemplate(name string) (MachineTemplate, error) {
	for _, t := range MachineTemplates() {
		if t.Name == name {
			return t, nil
		}
	}
	return MachineTemplate{}, fmt.Errorf("template %q does not exist: write small, medium or large", name)
}

// DefaultMachineTemplate returns the name of the template of a node without one, by its role:
// RoleControlPlane or RoleWorker.
func DefaultMachineTemplate(role string) string {
	if role == RoleControlPlane {
		return "large"
	}
	return "medium"
}
