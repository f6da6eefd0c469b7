package kubevirt

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// annotationAdopting on a VirtualMachine says that its disks and its Secret may still have the mark of
// its former Machine.
const annotationAdopting = "vitistack.io/adopting"

// isAdoptable reports whether a machine adopts an object: the object has a former UID of the machine,
// the kubevirt-operator made it for the machine, which it marks with an owner reference alone, or an administrator
// has the machine adopt what has its name and no mark.
func isAdoptable(obj kube.Object, m *v1alpha1.Machine) bool {
	uid := markOf(obj)
	if uid == "" && v1alpha1.AdoptsUnmarked(m) {
		return true
	}
	if uid == "" && obj.GetLabels()[v1alpha1.LabelManagedBy] == managedBy {
		uid = machineOwner(obj, m.Name)
		return uid != "" && uid == string(m.UID) || v1alpha1.HadUID(m, uid)
	}
	return v1alpha1.HadUID(m, uid)
}

// machineOwner returns the UID of the Machine with a name that owns an object, or nothing.
func machineOwner(obj kube.Object, name string) string {
	for _, r := range obj.GetOwnerReferences() {
		if r.Kind == "Machine" && r.Name == name {
			return string(r.UID)
		}
	}
	return ""
}

// needsAdoption reports whether a machine has to adopt its virtual machine, or to end that.
func needsAdoption(vm *kubevirtv1.VirtualMachine, m *v1alpha1.Machine) bool {
	if isMadeFor(vm, m) {
		return vm.Annotations[annotationAdopting] != ""
	}
	return isAdoptable(vm, m)
}

// adopt marks a virtual machine of a former UID with the machine's UID, and then its disks and its
// Secret. The first write decides between two machines, because it fails with a conflict if the
// virtual machine has changed since it was read. The virtual machine keeps running. A second call
// continues, and writes nothing once everything is adopted.
func (g guestObjects) adopt(ctx context.Context, m *v1alpha1.Machine, vm *kubevirtv1.VirtualMachine) error {
	if !needsAdoption(vm, m) {
		return nil
	}
	before := vm.DeepCopy()
	g.mark(vm, m)
	metav1.SetMetaDataAnnotation(&vm.ObjectMeta, annotationAdopting, "true")
	if _, err := g.client.Patch(ctx, before, vm); err != nil {
		return err
	}
	if err := g.adoptClaims(ctx, m, vm); err != nil {
		return err
	}
	if err := g.adoptSecret(ctx, m); err != nil {
		return err
	}
	before = vm.DeepCopy()
	delete(vm.Annotations, annotationAdopting)
	_, err := g.client.Patch(ctx, before, vm)
	return err
}

// adoptClaims marks the disks of an adopted virtual machine. The kubevirt-operator leaves them without a mark, so
// the volumes of the virtual machine identify those.
func (g guestObjects) adoptClaims(ctx context.Context, m *v1alpha1.Machine, vm *kubevirtv1.VirtualMachine) error {
	list := &corev1.PersistentVolumeClaimList{}
	if err := g.client.List(ctx, m.Namespace, v1alpha1.LabelMachine+"="+m.Name, list); err != nil {
		return err
	}
	claims, err := g.withoutUsed(ctx, m, list.Items)
	if err != nil {
		return err
	}
	for i := range claims {
		claim := &claims[i]
		unmarked := markOf(claim) == "" && usesClaim(vm, claim.Name)
		if !unmarked && !isAdoptable(claim, m) {
			continue
		}
		before := claim.DeepCopy()
		g.mark(claim, m)
		if _, err := g.client.Patch(ctx, before, claim); err != nil && !kube.NotFound(err) {
			return err
		}
	}
	return nil
}

// usesClaim reports whether a volume of a virtual machine is on a PersistentVolumeClaim.
func usesClaim(vm *kubevirtv1.VirtualMachine, claim string) bool {
	return vm.Spec.Template != nil && slices.ContainsFunc(vm.Spec.Template.Spec.Volumes, func(v kubevirtv1.Volume) bool {
		return claimOf(v) == claim
	})
}

// adoptSecret marks the Secret with the first configuration of an adopted virtual machine. It leaves a Secret with
// neither a mark nor a controller as it is, because the policy vitistack-written-secrets refuses to change it.
func (g guestObjects) adoptSecret(ctx context.Context, m *v1alpha1.Machine) error {
	secret := &corev1.Secret{}
	err := g.client.Get(ctx, m.Namespace, kube.Name(m.Name, "cloudinit"), secret)
	if kube.NotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	isForeign := secret.Annotations[v1alpha1.AnnotationUID] == "" && metav1.GetControllerOf(secret) == nil
	if isForeign || !isAdoptable(secret, m) {
		return nil
	}
	before := secret.DeepCopy()
	g.mark(secret, m)
	_, err = g.client.Patch(ctx, before, secret)
	return err
}

// mark writes a machine's UID on an object, and makes the machine its owner in the machine's own cluster. An
// owner of another cluster is removed, because the garbage collector would delete the object.
func (g guestObjects) mark(obj kube.Object, m *v1alpha1.Machine) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationUID] = string(m.UID)
	obj.SetAnnotations(annotations)
	if labels := obj.GetLabels(); labels[v1alpha1.AnnotationUID] != "" {
		labels[v1alpha1.AnnotationUID] = string(m.UID)
		obj.SetLabels(labels)
	}
	owners := slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return r.Kind == "Machine" })
	if g.local && metav1.GetControllerOf(&metav1.ObjectMeta{OwnerReferences: owners}) == nil {
		owners = append(owners, kube.Owned(m, v1alpha1.GroupVersion.String(), "Machine")...)
	}
	obj.SetOwnerReferences(owners)
}
