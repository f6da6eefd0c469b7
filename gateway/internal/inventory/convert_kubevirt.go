package inventory

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// KubeVirtGroupVersion is the API version of virtual machines and their instances.
var KubeVirtGroupVersion = schema.GroupVersion{Group: "kubevirt.io", Version: "v1"}

// VirtualMachine has the fields of a VirtualMachine of KubeVirt that the gateway shows. It is immutable, so that its copy is itself.
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Template *struct {
			Spec instanceSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		PrintableStatus string             `json:"printableStatus"`
		Conditions      []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// DeepCopyObject returns the virtual machine itself.
func (v *VirtualMachine) DeepCopyObject() runtime.Object { return v }

// VirtualMachineList is a list of VirtualMachines.
type VirtualMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachine `json:"items"`
}

// DeepCopyObject returns the list itself.
func (l *VirtualMachineList) DeepCopyObject() runtime.Object { return l }

// VirtualMachineInstance has the fields of a VirtualMachineInstance of KubeVirt that the gateway shows. It is immutable, so that its
// copy is itself.
type VirtualMachineInstance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              instanceSpec `json:"spec"`
	Status            struct {
		Phase      string `json:"phase"`
		NodeName   string `json:"nodeName"`
		Interfaces []struct {
			IP string `json:"ipAddress"`
		} `json:"interfaces"`
	} `json:"status"`
}

// DeepCopyObject returns the instance itself.
func (i *VirtualMachineInstance) DeepCopyObject() runtime.Object { return i }

// VirtualMachineInstanceList is a list of VirtualMachineInstances.
type VirtualMachineInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineInstance `json:"items"`
}

// DeepCopyObject returns the list itself.
func (l *VirtualMachineInstanceList) DeepCopyObject() runtime.Object { return l }

type instanceSpec struct {
	Domain domain `json:"domain"`
}

type domain struct {
	CPU *struct {
		Cores   uint32 `json:"cores"`
		Sockets uint32 `json:"sockets"`
		Threads uint32 `json:"threads"`
	} `json:"cpu"`
	Memory *struct {
		Guest *resource.Quantity `json:"guest"`
	} `json:"memory"`
	Resources struct {
		Requests corev1.ResourceList `json:"requests"`
	} `json:"resources"`
}

// size returns what the guest sees or, without that, the requests.
func (d *domain) size() (cpus, memory int64) {
	if c := d.CPU; c != nil {
		cpus = int64(max(c.Cores, 1)) * int64(max(c.Sockets, 1)) * int64(max(c.Threads, 1))
	} else {
		cpus = max(d.Resources.Requests.Cpu().Value(), 1)
	}
	if d.Memory != nil && d.Memory.Guest != nil {
		memory = d.Memory.Guest.Value()
	} else {
		memory = d.Resources.Requests.Memory().Value()
	}
	return cpus, memory
}

func fromVM(v *VirtualMachine) (*Object, error) {
	facts := &VM{
		Phase:   cmp.Or(v.Status.PrintableStatus, "Unknown"),
		Machine: cmp.Or(v.Labels[v1alpha1.LabelMachine], v.Labels[v1alpha1.LabelSourceMachine]),
		Cluster: v.Labels[v1alpha1.LabelClusterName],
	}
	if v.Spec.Template != nil {
		facts.CPUs, facts.Memory = v.Spec.Template.Spec.Domain.size()
	}
	o, err := newObject(KindVM, KubeVirtGroupVersion.String(), &v.ObjectMeta, facts, nil, nil)
	if err != nil {
		return nil, err
	}
	o.Readiness = readinessOf(o.Kind, &v.ObjectMeta, v.Status.Conditions)
	return o, nil
}

func fromInstance(i *VirtualMachineInstance) (*Object, error) {
	facts := &Instance{Phase: i.Status.Phase, Host: i.Status.NodeName}
	facts.CPUs, facts.Memory = i.Spec.Domain.size()
	for _, n := range i.Status.Interfaces {
		if n.IP != "" {
			facts.Addresses = append(facts.Addresses, n.IP)
		}
	}
	return newObject(KindVMI, KubeVirtGroupVersion.String(), &i.ObjectMeta, facts, nil, nil)
}
