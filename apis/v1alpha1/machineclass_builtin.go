package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BuiltInClasses returns the sizes that exist without an object, the smallest first.
func BuiltInClasses() []MachineClass {
	class := func(name string, cores int32, memory, disk Size) MachineClass {
		return MachineClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: MachineClassSpec{
			Resources: MachineResources{CPU: &MachineCPU{Cores: cores}, Memory: &MachineMemory{Size: memory}},
			Disks:     []MachineDisk{{Name: RootDisk, Size: disk}},
		}}
	}
	return []MachineClass{class("small", 1, "2Gi", "20Gi"), class("medium", 2, "4Gi", "40Gi"), class("large", 4, "8Gi", "80Gi")}
}

// IsBuiltInClass reports whether a template needs no MachineClass.
func IsBuiltInClass(name string) bool {
	return slices.ContainsFunc(BuiltInClasses(), func(c MachineClass) bool { return c.Name == name })
}

// FindMachineClass returns the size that a template names: a built-in one, or one of the given MachineClasses.
// The error says which names exist, and that a MachineClass may be created.
func FindMachineClass(name string, classes []MachineClass) (MachineClassSpec, error) {
	builtIn := BuiltInClasses()
	for _, all := range [][]MachineClass{builtIn, classes} {
		if i := slices.IndexFunc(all, func(c MachineClass) bool { return c.Name == name }); i >= 0 {
			return all[i].Spec, nil
		}
	}
	return MachineClassSpec{}, fmt.Errorf("template %q does not exist: write %s, or ask the platform team to create MachineClass %s",
		name, choiceOf(builtIn, classes), name)
}

// maxNames bounds the MachineClasses that a message lists.
const maxNames = 20

// choiceOf lists the names of sizes, for example: small, medium or large.
func choiceOf(builtIn, classes []MachineClass) string {
	var names []string
	for _, c := range classes {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	last := ""
	if len(names) > maxNames {
		names, last = names[:maxNames], "another one of kubectl get machineclasses"
	}
	all := make([]string, 0, len(builtIn)+len(names)+1)
	for _, c := range builtIn {
		all = append(all, c.Name)
	}
	all = append(all, names...)
	if last != "" {
		all = append(all, last)
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

// DefaultMachineTemplate returns the template of a node without one, by its role: RoleControlPlane or RoleWorker.
func DefaultMachineTemplate(role string) string {
	if role == RoleControlPlane {
		return "large"
	}
	return "medium"
}
