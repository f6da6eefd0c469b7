package kubevirt

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Operations on claims, for the fault plan.
const (
	opBind   = "pvc/bind"
	opResize = "pvc/resize"
)

const (
	annotationSelectedNode  = "volume.kubernetes.io/selected-node"
	annotationProvisioner   = "volume.kubernetes.io/storage-provisioner"
	annotationBindCompleted = "pv.kubernetes.io/bind-completed"
	annotationBound         = "pv.kubernetes.io/bound-by-controller"
	annotationProvisionedBy = "pv.kubernetes.io/provisioned-by"

	finalizerClaimInUse  = "kubernetes.io/pvc-protection"
	finalizerVolumeInUse = "kubernetes.io/pv-protection"
)

// claim reconciles a PersistentVolumeClaim.
func (s *Simulator) claim(ctx context.Context, namespace, name string) (time.Duration, error) {
	claim := s.api.claims.get(namespace, name)
	switch {
	case claim == nil:
		return 0, nil
	case claim.DeletionTimestamp != nil:
		return 0, s.releaseClaim(ctx, claim)
	case s.orphaned(claim):
		_, err := s.api.claims.delete(ctx, claim)
		return 0, err
	case claim.Status.Phase == corev1.ClaimBound:
		return s.resize(ctx, claim)
	}
	class := s.classOf(claim)
	switch {
	case class == nil:
		if c := claim.Spec.StorageClassName; c != nil && *c != "" {
			s.events.warn(ctx, "persistentvolume-controller", claimReference(claim), "ProvisioningFailed",
				fmt.Sprintf("storageclass.storage.k8s.io %q not found", *c))
		}
		return 0, nil
	case class.Provisioner != provisioner || s.awaitsConsumer(claim, class) || s.awaitsImport(claim):
		return 0, nil
	}
	return s.bindClaim(ctx, claim, class)
}

// bindClaim creates a volume and binds the claim to it. It skips each write that is done, so that it
// can be interrupted at any point.
func (s *Simulator) bindClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (time.Duration, error) {
	step := step{claim.UID, opBind}
	left, fault := s.pace.wait(step, s.options.Times.Provisioning)
	if left > 0 {
		return left, nil
	}
	s.pace.done(step)
	if text, failed := fault.Before(); failed {
		s.events.warn(ctx, provisioner, claimReference(claim), "ProvisioningFailed",
			fmt.Sprintf("failed to provision volume with StorageClass %q: %s", class.Name, text))
		return 0, injected(opBind, text)
	}
	volume := s.api.volumes.get("", volumeName(claim))
	if volume == nil {
		made, err := s.api.volumes.create(ctx, volumeFor(claim, class))
		if err != nil {
			return 0, err
		}
		volume = made
	}
	if text, failed := fault.Lost(); failed {
		return 0, injected(opBind, text)
	}
	bound := claim.DeepCopy()
	bound.Spec.VolumeName = volume.Name
	if bound.Annotations == nil {
		bound.Annotations = map[string]string{}
	}
	bound.Annotations[annotationBindCompleted], bound.Annotations[annotationBound] = "yes", "yes"
	bound.Annotations[annotationProvisioner] = class.Provisioner
	if !slices.Contains(bound.Finalizers, finalizerClaimInUse) { // if admission has not added it
		bound.Finalizers = append(bound.Finalizers, finalizerClaimInUse)
	}
	if s.awaitsImport(claim) {
		bound.Annotations[annotationPodPhase] = string(corev1.PodSucceeded)
	}
	claim, err := s.api.claims.patch(ctx, claim, bound)
	if err != nil {
		return 0, err
	}
	inUse := volume.DeepCopy()
	inUse.Status.Phase = corev1.VolumeBound
	if _, err := s.api.volumes.patch(ctx, volume, inUse, "status"); err != nil {
		return 0, err
	}
	ready := claim.DeepCopy()
	ready.Status.Phase = corev1.ClaimBound
	ready.Status.AccessModes = volume.Spec.AccessModes
	ready.Status.Capacity = volume.Spec.Capacity
	_, err = s.api.claims.patch(ctx, claim, ready, "status")
	return 0, err
}

// resize grows the volume of a bound claim that requests more. The API server permits that only for
// expandable classes.
func (s *Simulator) resize(ctx context.Context, claim *corev1.PersistentVolumeClaim) (time.Duration, error) {
	asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if asked.Cmp(claim.Status.Capacity[corev1.ResourceStorage]) <= 0 {
		return 0, nil
	}
	volume := s.api.volumes.get("", claim.Spec.VolumeName)
	if volume == nil || volume.Annotations[annotationProvisionedBy] != provisioner {
		return 0, nil
	}
	step := step{claim.UID, opResize}
	left, fault := s.pace.wait(step, s.options.Times.Provisioning)
	if left > 0 {
		return left, nil
	}
	s.pace.done(step)
	if text, failed := fault.Before(); failed {
		s.events.warn(ctx, "external-resizer "+provisioner, claimReference(claim), "VolumeResizeFailed",
			fmt.Sprintf("resize volume %q by resizer %q failed: %s", volume.Name, provisioner, text))
		return 0, injected(opResize, text)
	}
	grown := volume.DeepCopy()
	grown.Spec.Capacity[corev1.ResourceStorage] = asked
	if _, err := s.api.volumes.patch(ctx, volume, grown); err != nil {
		return 0, err
	}
	if text, failed := fault.Lost(); failed {
		return 0, injected(opResize, text)
	}
	ready := claim.DeepCopy()
	ready.Status.Capacity = grown.Spec.Capacity
	_, err := s.api.claims.patch(ctx, claim, ready, "status")
	return 0, err
}

// releaseClaim removes the finalizer of a claim that no running instance uses. Its volume is deleted
// afterwards.
func (s *Simulator) releaseClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if !slices.Contains(claim.Finalizers, finalizerClaimInUse) || s.inUse(claim) {
		return nil
	}
	free := claim.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == finalizerClaimInUse })
	_, err := s.api.claims.patch(ctx, claim, free)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// inUse reports whether the pod of an instance mounts the claim.
func (s *Simulator) inUse(claim *corev1.PersistentVolumeClaim) bool {
	used := false
	s.api.vmis.cache.each(claim.Namespace, func(vmi *virtv1.VirtualMachineInstance) {
		used = used || (nodeOf(vmi) != "" && !vmi.IsFinal() && refersTo(vmi.Spec.Volumes, claim.Name))
	})
	return used
}

func refersTo(volumes []virtv1.Volume, claim string) bool {
	return slices.ContainsFunc(volumes, func(v virtv1.Volume) bool { return volumeClaim(v) == claim })
}

// volume deletes a volume whose claim is deleted, unless its policy retains it.
func (s *Simulator) volume(ctx context.Context, name string) (time.Duration, error) {
	volume := s.api.volumes.get("", name)
	if volume == nil || volume.Annotations[annotationProvisionedBy] != provisioner || volume.Spec.ClaimRef == nil {
		return 0, nil
	}
	ref := volume.Spec.ClaimRef
	if s.options.Namespace != "" && ref.Namespace != s.options.Namespace {
		return 0, nil
	}
	if claim := s.api.claims.get(ref.Namespace, ref.Name); claim != nil && claim.UID == ref.UID {
		return 0, nil
	}
	if volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain && volume.DeletionTimestamp == nil {
		released := volume.DeepCopy()
		released.Status.Phase = corev1.VolumeReleased
		_, err := s.api.volumes.patch(ctx, volume, released, "status")
		return 0, err
	}
	free := volume.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == finalizerVolumeInUse })
	freed, err := s.api.volumes.patch(ctx, volume, free)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil || freed.DeletionTimestamp != nil {
		return 0, err
	}
	_, err = s.api.volumes.delete(ctx, freed)
	return 0, err
}

func (s *Simulator) classOf(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if claim.Spec.StorageClassName == nil {
		return nil // admission has set the default class, if there is one
	}
	return s.api.classes.get("", *claim.Spec.StorageClassName)
}

func waitsForFirstConsumer(class *storagev1.StorageClass) bool {
	return class != nil && class.VolumeBindingMode != nil &&
		*class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// waitsForConsumer reports whether a claim gets its volume when an instance has a node.
func (s *Simulator) waitsForConsumer(claim *corev1.PersistentVolumeClaim) bool {
	return waitsForFirstConsumer(s.classOf(claim)) || s.awaitsImport(claim)
}

func (s *Simulator) awaitsConsumer(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	return waitsForFirstConsumer(class) && claim.Annotations[annotationSelectedNode] == "" &&
		claim.Annotations[annotationImmediate] == ""
}

// awaitsImport reports whether CDI binds a claim once it has filled the volume.
func (s *Simulator) awaitsImport(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == dataVolumeKind && claim.Annotations[annotationPodPhase] != string(corev1.PodSucceeded)
}

// orphaned reports whether the DataVolume of a claim is deleted.
func (s *Simulator) orphaned(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	if owner == nil || owner.Kind != dataVolumeKind || owner.APIVersion != cdiv1.SchemeGroupVersion.String() {
		return false
	}
	dv := s.api.imports.get(claim.Namespace, owner.Name)
	return dv == nil || dv.UID != owner.UID
}

func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

func volumeFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        volumeName(claim),
			Annotations: map[string]string{annotationProvisionedBy: class.Provisioner},
			Finalizers:  []string{finalizerVolumeInUse},
		},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			AccessModes: claim.Spec.AccessModes,
			VolumeMode:  claim.Spec.VolumeMode,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			},
			PersistentVolumeReclaimPolicy: reclaimPolicy(class),
			StorageClassName:              class.Name,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: class.Provisioner, VolumeHandle: string(claim.UID)},
			},
		},
	}
}

func reclaimPolicy(class *storagev1.StorageClass) corev1.PersistentVolumeReclaimPolicy {
	if class.ReclaimPolicy != nil {
		return *class.ReclaimPolicy
	}
	return corev1.PersistentVolumeReclaimDelete
}

func claimReference(claim *corev1.PersistentVolumeClaim) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
	}
}
