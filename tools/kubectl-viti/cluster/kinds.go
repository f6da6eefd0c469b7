// Package cluster reads and changes objects of a management cluster with the rights of the user.
package cluster

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a kind of objects.
type Kind struct {
	// Name is the kind, and Resource its plural in lower case.
	Name, Resource string
	// Short is the short name, as in kubectl get ma.
	Short   string
	Group   string
	Version string
	// ClusterScoped is whether objects are in no namespace.
	ClusterScoped bool
}

const group = "vitistack.io"

// Kinds are the kinds of the stack, from the top to the bottom.
var Kinds = []Kind{
	{Name: "KubernetesCluster", Resource: "kubernetesclusters", Short: "kc", Group: group, Version: "v1alpha1"},
	{Name: "Machine", Resource: "machines", Short: "ma", Group: group, Version: "v1alpha1"},
	{Name: "NetworkConfiguration", Resource: "networkconfigurations", Short: "nc", Group: group, Version: "v1alpha1"},
	{Name: "IPAllocation", Resource: "ipallocations", Short: "ipa", Group: group, Version: "v1alpha2"},
	{Name: "NetworkNamespace", Resource: "networknamespaces", Short: "nn", Group: group, Version: "v1alpha2"},
	{Name: "EtcdBackup", Resource: "etcdbackups", Short: "eb", Group: group, Version: "v1alpha1"},
	{Name: "MachineProvider", Resource: "machineproviders", Short: "mp", Group: group, Version: "v1alpha1", ClusterScoped: true},
	{Name: "ClusterTemplate", Resource: "clustertemplates", Short: "ct", Group: group, Version: "v1alpha1", ClusterScoped: true},
	{Name: "MachineClass", Resource: "machineclasses", Short: "mcl", Group: group, Version: "v1alpha1", ClusterScoped: true},
	{Name: "NetworkPool", Resource: "networkpools", Short: "netpool", Group: group, Version: "v1alpha1", ClusterScoped: true},
}

// HasConditions reports whether objects of the kind have a status with conditions.
func (k Kind) HasConditions() bool { return k.Name != "NetworkPool" && k.Name != "MachineClass" }

// Belongings are the kinds of other projects whose objects belong to objects of the stack.
var Belongings = []Kind{
	{Name: "VirtualMachine", Resource: "virtualmachines", Group: "kubevirt.io", Version: "v1"},
	{Name: "VirtualMachineInstance", Resource: "virtualmachineinstances", Group: "kubevirt.io", Version: "v1"},
	{Name: "DataVolume", Resource: "datavolumes", Group: "cdi.kubevirt.io", Version: "v1beta1"},
	{Name: "PersistentVolumeClaim", Resource: "persistentvolumeclaims", Version: "v1"},
	{Name: "Lease", Resource: "leases", Group: "coordination.k8s.io", Version: "v1"},
	{Name: "Secret", Resource: "secrets", Version: "v1"},
}

// GVR returns the resource with group and version.
func (k Kind) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// Singular is the kind in lower case, as kubectl and messages write it.
func (k Kind) Singular() string { return strings.ToLower(k.Name) }

// FindKind returns the kind of the stack with a name as kubectl takes it: the kind, its plural or its
// short name, in any case, also followed by the group. The error lists the names.
func FindKind(name string) (Kind, error) {
	want := strings.ToLower(strings.SplitN(name, ".", 2)[0])
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return want == k.Singular() || want == k.Resource || want == k.Short })
	if i < 0 {
		var names []string
		for _, k := range Kinds {
			names = append(names, k.Singular()+" ("+k.Short+")")
		}
		return Kind{}, fmt.Errorf("the stack has no kind %q: write %s", name, strings.Join(names, ", "))
	}
	return Kinds[i], nil
}

// MustFindKind returns the kind of the stack with a name that the program itself has.
func MustFindKind(name string) Kind {
	k, err := FindKind(name)
	if err != nil {
		panic(err)
	}
	return k
}

// ParseName reads NAME of a standard kind, or what ParseTarget reads. Without a standard kind it is ParseTarget.
func ParseName(standard string, args []string) (Kind, string, error) {
	if standard != "" && len(args) == 1 && !strings.Contains(args[0], "/") {
		args = []string{standard, args[0]}
	}
	return ParseTarget(args)
}

// ParseTarget reads KIND/NAME, or KIND and NAME as two arguments.
func ParseTarget(args []string) (Kind, string, error) {
	kind, name := "", ""
	switch {
	case len(args) == 1:
		kind, name, _ = strings.Cut(args[0], "/")
	case len(args) == 2 && !strings.Contains(args[0], "/"):
		kind, name = args[0], args[1]
	}
	if kind == "" || name == "" || strings.Contains(name, "/") {
		return Kind{}, "", fmt.Errorf("%q names no object: write KIND/NAME, for example machine/web or kubernetescluster/shop", strings.Join(args, " "))
	}
	k, err := FindKind(kind)
	return k, name, err
}
