package kubevirt

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// guestObjects creates, adopts and deletes the objects of machines in the cluster of the virtual machines.
type guestObjects struct {
	client *kube.Client
	// home is the client for the cluster of the Machines.
	home *kube.Client
	// local is whether that is the cluster of the Machines too, so that Machines can own the objects.
	local bool
}

func (k *Hypervisor) objects() guestObjects { return guestObjects{k.guests, k.home, k.local} }

// listClaims returns the PersistentVolumeClaims of a machine.
func (g guestObjects) listClaims(ctx context.Context, m *v1alpha1.Machine) ([]corev1.PersistentVolumeClaim, error) {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := g.client.List(ctx, m.Namespace, v1alpha1.LabelMachine+"="+m.Name, claims); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(claims.Items, func(c corev1.PersistentVolumeClaim) bool { return !isMadeFor(&c, m) }), nil
}

// withoutUsed removes the claims that another virtual machine uses. KubeVirt copies the labels and the annotations of a claim, and with them
// the mark of its Machine, when it clones a virtual machine, or restores a snapshot to another one (CreateRestorePVCDef in its
// pkg/storage/snapshot/restore.go, 1.8.4). It lists the virtual machines only if there are claims with other names than the stack has given them.
func (g guestObjects) withoutUsed(ctx context.Context, m *v1alpha1.Machine, claims []corev1.PersistentVolumeClaim) ([]corev1.PersistentVolumeClaim, error) {
	given := []string{claimName(m, v1alpha1.RootDisk), claimName(m, installerDisk)}
	for _, d := range m.Spec.Disks {
		given = append(given, claimName(m, d.Name))
	}
	if !slices.ContainsFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return !slices.Contains(given, c.Name) }) {
		return claims, nil
	}
	vms := &kubevirtv1.VirtualMachineList{}
	if err := g.client.List(ctx, m.Namespace, "", vms); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(claims, func(c corev1.PersistentVolumeClaim) bool {
		return slices.ContainsFunc(vms.Items, func(vm kubevirtv1.VirtualMachine) bool { return vm.Name != m.Name && usesClaim(&vm, c.Name) })
	}), nil
}

// resolveClasses returns the StorageClasses of disks.
func (k *Hypervisor) resolveClasses(ctx context.Context, disks []hypervisor.Disk) (class map[string]string, err error) {
	classes := &storagev1.StorageClassList{}
	err = k.guests.ListToChoose(ctx, "", classes, func() (err error) {
		class, err = k.classesOf(disks, classes.Items)
		return err
	})
	return class, err
}

// classesOf returns the StorageClasses of disks among those of a cluster.
func (k *Hypervisor) classesOf(disks []hypervisor.Disk, classes []storagev1.StorageClass) (map[string]string, error) {
	class := map[string]string{}
	for _, d := range append(slices.Clone(disks), hypervisor.Disk{}) {
		name, err := resolveClass(classes, d.StorageClass, k.defaults.StorageClass)
		if err != nil && d.Name != "" {
			return nil, err
		}
		class[d.StorageClass] = name
	}
	return class, nil
}

// ensureNamespace creates the namespace of a machine if its virtual machines are in another
// cluster.
func (g guestObjects) ensureNamespace(ctx context.Context, namespace string) error {
	if g.local {
		return nil
	}
	err := g.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{v1alpha1.LabelManagedBy: managedBy},
	}})
	if kube.AlreadyExists(err) {
		return nil
	}
	return err
}

// create creates an object of a machine, unless it exists, and reports whether it has created it.
func (g guestObjects) create(ctx context.Context, m *v1alpha1.Machine, obj kube.Object) (created bool, err error) {
	err = g.client.Create(ctx, obj)
	if !kube.AlreadyExists(err) {
		return err == nil, err
	}
	if err := g.client.Get(ctx, m.Namespace, obj.GetName(), obj); err != nil {
		return false, err
	}
	return false, g.takeExisting(ctx, m, obj)
}

// takeExisting adopts an object of a machine that has no virtual machine, if it may. It returns a UserError for an object that was not
// created for the machine.
func (g guestObjects) takeExisting(ctx context.Context, m *v1alpha1.Machine, obj kube.Object) error {
	switch {
	case obj.GetDeletionTimestamp() != nil:
		return fmt.Errorf("create %T %s/%s: an earlier one is still being deleted", obj, m.Namespace, obj.GetName())
	case isAdoptable(obj, m): // its virtual machine is gone, or was never created
		before := obj.DeepCopyObject().(kube.Object)
		g.mark(obj, m)
		_, err := g.client.Patch(ctx, before, obj)
		return err
	case !isMadeFor(obj, m):
		return reconcile.UserError{Reason: "NameTaken", Message: fmt.Sprintf("%s %s was not created for this machine: delete it, or give the machine another name", kube.KindOf(obj), obj.GetName())}
	}
	return nil
}

// deleteOne deletes one object that was created for the machine, and reports whether it is gone. It returns an error for which
// kube.Conflict is true for a machine that has been protected or paused since it was read.
func (g guestObjects) deleteOne(ctx context.Context, m *v1alpha1.Machine, name string, obj kube.Object) (bool, error) {
	for range 2 {
		err := g.client.Get(ctx, m.Namespace, name, obj)
		if kube.NotFound(err) || (err == nil && !isMadeFor(obj, m)) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if obj.GetDeletionTimestamp() != nil {
			return false, nil
		}
		if err := hypervisor.CheckRemoval(ctx, g.home, m); err != nil {
			return false, err
		}
		if err := g.client.Delete(ctx, obj); err != nil {
			return false, err
		}
	}
	return false, nil
}

// isMadeFor reports whether an object was created for the machine, and not for a deleted one
// of the same name or by another user.
func isMadeFor(obj kube.Object, m *v1alpha1.Machine) bool { return markOf(obj) == string(m.UID) }

// markOf returns the UID of the Machine that an object was created for, or nothing. CDI copies only the
// labels of a DataVolume to its claim, so claims have the UID in a label.
func markOf(obj kube.Object) string {
	if uid, ok := obj.GetAnnotations()[v1alpha1.AnnotationUID]; ok {
		return uid
	}
	return obj.GetLabels()[v1alpha1.AnnotationUID]
}
