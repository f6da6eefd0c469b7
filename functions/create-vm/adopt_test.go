package main

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

const operatorMAC = "52:54:00:00:00:77"

// operatorClaim is a disk as the kubevirt-operator leaves it: {machine}-{disk}, with the label of the Machine.
func operatorClaim() *corev1.PersistentVolumeClaim {
	class := "standard"
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "web-root", Labels: map[string]string{"vitistack.io/machine": "web"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}},
		},
	}
}

// operatorVM is a VirtualMachine as the specification of the kubevirt-operator has it: without a mark, owned by its Machine.
func operatorVM(owner *v1alpha1.Machine) *kubevirtv1.VirtualMachine {
	running, memory := true, resource.MustParse("2Gi")
	labels := map[string]string{"vitistack.io/managed-by": "kubevirt-operator", "vitistack.io/machine": "web"}
	return &kubevirtv1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: labels, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine", Name: owner.Name, UID: owner.UID},
		}},
		Spec: kubevirtv1.VirtualMachineSpec{Running: &running, Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"vitistack.io/machine": "web"}},
			Spec: kubevirtv1.VirtualMachineInstanceSpec{
				Domain: kubevirtv1.DomainSpec{
					CPU: &kubevirtv1.CPU{Cores: 1, Threads: 1, Sockets: 1}, Memory: &kubevirtv1.Memory{Guest: &memory},
					Devices: kubevirtv1.Devices{
						Disks: []kubevirtv1.Disk{{Name: "root", DiskDevice: kubevirtv1.DiskDevice{Disk: &kubevirtv1.DiskTarget{Bus: "virtio"}}}},
						Interfaces: []kubevirtv1.Interface{{Name: "eth0", Model: "virtio", MacAddress: operatorMAC,
							InterfaceBindingMethod: kubevirtv1.InterfaceBindingMethod{Bridge: &kubevirtv1.InterfaceBridge{}}}},
					},
				},
				Networks: []kubevirtv1.Network{{Name: "eth0", NetworkSource: kubevirtv1.NetworkSource{Pod: &kubevirtv1.PodNetwork{}}}},
				Volumes: []kubevirtv1.Volume{{Name: "root", VolumeSource: kubevirtv1.VolumeSource{PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "web-root"}}}}},
			},
		}},
	}
}

// TestAdoptsVMOfOperator adopts a running virtual machine exactly as the kubevirt-operator leaves it: it is not restarted, and the deletion
// of its Machine deletes it with its disk. One that another Machine owns stays.
func TestAdoptsVMOfOperator(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		owner  types.UID
		adopts bool
	}{{"the operator made it for this Machine", "", true}, {"the operator made it for a Machine that another one replaced", "other", false}} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			r := newEnv(t, kubevirtSite)
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1alpha1.MachineSpec{Template: "small",
				Networks: []v1alpha1.MachineNetwork{{Name: "eth0", NetworkName: "web", MACAddress: operatorMAC}}}}
			r.Create(m)
			r.Create(&v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1alpha1.NetworkConfigurationSpec{
				NetworkNamespaceName: "net", NetworkInterfaces: []v1alpha1.InterfaceSpec{{Name: "eth0", MACAddress: operatorMAC}}}})
			owner := m.DeepCopy()
			if tc.owner != "" {
				owner.UID = tc.owner
			}
			claim, vm := operatorClaim(), operatorVM(owner)
			r.Create(claim)
			r.Create(vm)
			before := vm.UID
			feed.Until(t, "the virtual machine runs", func() (bool, string) {
				err := r.Kube.Get(t.Context(), r.Namespace, "web", vm)
				return err == nil && vm.Status.Ready, fmt.Sprint(vm.Status.PrintableStatus, vm.Status.Conditions)
			})
			if !tc.adopts {
				r.Drive("web", &hypervisortest.Wire{}, "reports it", hypervisortest.HasReason("VirtualMachineNameTaken"))
				return
			}
			m = r.Drive("web", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
			if vms := r.Site.VMs(m); len(vms) != 1 || vms[0] != string(before) || r.Site.Starts(m) != 1 {
				t.Errorf("got virtual machines %v, started %d times, want %s once", vms, r.Site.Starts(m), before)
			}
			if err := r.Kube.Get(t.Context(), r.Namespace, "web-root", claim); err != nil || claim.Annotations[v1alpha1.AnnotationUID] != string(m.UID) {
				t.Errorf("the disk has the marks %v: %v", claim.Annotations, err)
			}
			r.DeleteMachine(m, &hypervisortest.Wire{})
			if err := r.Kube.Get(t.Context(), r.Namespace, "web-root", claim); !kube.NotFound(err) {
				t.Errorf("the disk is left: %v", err)
			}
		})
	}
}
