package kubevirt

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Remove implements hypervisor.Interface.
func (k *Hypervisor) Remove(ctx context.Context, m *v1alpha1.Machine) (string, error) {
	vm := &kubevirtv1.VirtualMachine{}
	if len(v1alpha1.FormerUIDs(m)) > 0 {
		if err := k.adoptExisting(ctx, m); err != nil {
			return "", err
		}
	}
	gone, err := k.objects().deleteOne(ctx, m, m.Name, vm)
	if err != nil || !gone {
		return "VirtualMachine " + m.Name, err
	}
	// The instance of a virtual machine that another Machine has adopted still has the mark of this one.
	if isAdopted := vm.UID != "" && !isMadeFor(vm, m); !isAdopted {
		gone, err = k.objects().deleteOne(ctx, m, m.Name, &kubevirtv1.VirtualMachineInstance{})
		if err != nil || !gone {
			return "VirtualMachineInstance " + m.Name, err
		}
	}
	claims, err := k.objects().listClaims(ctx, m)
	if err == nil {
		claims, err = k.objects().withoutUsed(ctx, m, claims)
	}
	if err != nil {
		return "", err
	}
	waitsFor := ""
	for i := range claims {
		c := &claims[i]
		if gone, err := k.objects().deleteOne(ctx, m, c.Name, c); err != nil {
			return "", err
		} else if !gone {
			waitsFor = "PersistentVolumeClaim " + c.Name
		}
	}
	if waitsFor != "" {
		return waitsFor, nil
	}
	_, err = k.objects().deleteOne(ctx, m, kube.Name(m.Name, "cloudinit"), &corev1.Secret{})
	return "", k.secretError(err)
}

// adoptExisting adopts the virtual machine of a machine that is deleted before it has done so, so that the
// deletion leaves nothing behind.
func (k *Hypervisor) adoptExisting(ctx context.Context, m *v1alpha1.Machine) error {
	vm := &kubevirtv1.VirtualMachine{}
	err := k.guests.Get(ctx, m.Namespace, m.Name, vm)
	if kube.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return k.objects().adopt(ctx, m, vm)
}
