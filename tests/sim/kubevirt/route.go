package kubevirt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

type storageClass = storagev1.StorageClass

// reconcile reconciles the object of a key.
func (s *Simulator) reconcile(ctx context.Context, k key) (time.Duration, error) {
	switch k.topic {
	case machines:
		return s.machine(ctx, k.namespace, k.name)
	case claims:
		return s.claim(ctx, k.namespace, k.name)
	case volumes:
		return s.volume(ctx, k.name)
	case imports:
		return s.dataVolume(ctx, k.namespace, k.name)
	}
	return 0, fmt.Errorf("unknown topic %q", k.topic)
}

// route determines the keys for each change. It must be called before the watches start.
func (s *Simulator) route() {
	s.api.vms.cache.changed = s.machineChanged
	s.api.vmis.cache.changed = s.instanceChanged
	s.api.imports.cache.changed = s.importChanged
	s.api.claims.cache.changed = s.claimChanged
	s.api.volumes.cache.changed = s.volumeChanged
	s.api.pods.cache.changed = func(p *corev1.Pod) {
		if name := p.Annotations[virtv1.DomainAnnotation]; name != "" {
			s.queue.Add(key{machines, p.Namespace, name})
		}
	}
	s.api.nodes.cache.changed = func(*corev1.Node) { s.queueWaiting() }
	s.api.networks.cache.changed = func(*networkAttachment) { s.queueWaiting() }
	s.api.classes.cache.changed = func(*storageClass) {
		s.api.claims.cache.each("", func(c *corev1.PersistentVolumeClaim) {
			if c.Status.Phase != corev1.ClaimBound {
				s.queue.Add(key{claims, c.Namespace, c.Name})
				s.queue.Add(key{imports, c.Namespace, c.Name})
			}
		})
	}
}

func (s *Simulator) machineChanged(vm *virtv1.VirtualMachine) {
	s.queue.Add(key{machines, vm.Namespace, vm.Name})
	if s.options.RealController && s.api.vms.get(vm.Namespace, vm.Name) == nil {
		if err := s.options.Guests.Destroy(machineID(vm)); err != nil {
			s.log.Error("Cannot destroy a guest", "namespace", vm.Namespace, "name", vm.Name, "error", err)
		}
	}
	if vm.DeletionTimestamp == nil {
		return
	}
	for _, t := range vm.Spec.DataVolumeTemplates {
		s.queue.Add(key{imports, vm.Namespace, t.Name})
	}
}

func (s *Simulator) instanceChanged(vmi *virtv1.VirtualMachineInstance) {
	s.queue.Add(key{machines, vmi.Namespace, vmi.Name})
	current := s.api.vmis.get(vmi.Namespace, vmi.Name)
	left := current == nil || current.UID != vmi.UID
	if left {
		s.hosts.release(vmi.UID)
		s.power.forget(vmi.UID)
		s.pace.forget(vmi.UID)
		s.events.forget(vmi.UID)
	}
	if left || vmi.IsFinal() {
		for _, v := range vmi.Spec.Volumes {
			if name := volumeClaim(v); name != "" {
				s.queue.Add(key{claims, vmi.Namespace, name})
			}
		}
		s.queueWaiting()
	}
}

func (s *Simulator) importChanged(dv *cdiv1.DataVolume) {
	s.queue.Add(key{imports, dv.Namespace, dv.Name})
	s.queue.Add(key{claims, dv.Namespace, dv.Name})
	s.queueUsers(dv.Namespace, dv.Name)
	if current := s.api.imports.get(dv.Namespace, dv.Name); current == nil {
		s.pace.forget(dv.UID)
		s.events.forget(dv.UID)
	}
}

func (s *Simulator) claimChanged(claim *corev1.PersistentVolumeClaim) {
	s.queue.Add(key{claims, claim.Namespace, claim.Name})
	s.queue.Add(key{imports, claim.Namespace, claim.Name})
	s.queueUsers(claim.Namespace, claim.Name)
	if current := s.api.claims.get(claim.Namespace, claim.Name); current == nil || current.UID != claim.UID {
		s.queue.Add(key{volumes, "", volumeName(claim)})
		s.pace.forget(claim.UID)
		s.events.forget(claim.UID)
	}
}

func (s *Simulator) volumeChanged(volume *corev1.PersistentVolume) {
	s.queue.Add(key{volumes, "", volume.Name})
	if ref := volume.Spec.ClaimRef; ref != nil && volume.Status.Phase != corev1.VolumeBound {
		s.queue.Add(key{claims, ref.Namespace, ref.Name})
	}
}

// queueUsers queues the machines that refer to a claim or DataVolume.
func (s *Simulator) queueUsers(namespace, claim string) {
	s.api.vms.cache.each(namespace, func(vm *virtv1.VirtualMachine) {
		if vm.Spec.Template != nil && refersTo(vm.Spec.Template.Spec.Volumes, claim) {
			s.queue.Add(key{machines, vm.Namespace, vm.Name})
		}
	})
	s.api.vmis.cache.each(namespace, func(vmi *virtv1.VirtualMachineInstance) {
		if metav1.GetControllerOf(vmi) == nil && refersTo(vmi.Spec.Volumes, claim) {
			s.queue.Add(key{machines, vmi.Namespace, vmi.Name})
		}
	})
}

// queueWaiting queues the instances whose pods have not started.
func (s *Simulator) queueWaiting() {
	s.api.vmis.cache.each("", func(vmi *virtv1.VirtualMachineInstance) {
		if vmi.Status.NodeName == "" && !vmi.IsFinal() {
			s.queue.Add(key{machines, vmi.Namespace, vmi.Name})
		}
	})
}

func (a *api) listNodes() []*corev1.Node {
	var all []*corev1.Node
	a.nodes.cache.each("", func(n *corev1.Node) { all = append(all, n) })
	return all
}

func (a *api) listInstances() []*virtv1.VirtualMachineInstance {
	var all []*virtv1.VirtualMachineInstance
	a.vmis.cache.each("", func(vmi *virtv1.VirtualMachineInstance) { all = append(all, vmi) })
	return all
}

func sortByName(all []virtv1.VolumeStatus) {
	slices.SortStableFunc(all, func(a, b virtv1.VolumeStatus) int { return strings.Compare(a.Name, b.Name) })
}
