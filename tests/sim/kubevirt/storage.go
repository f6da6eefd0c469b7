package kubevirt

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	virtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// storage returns the existing claims and DataVolumes of volumes.
func (s *Simulator) storage(namespace string, volumes []virtv1.Volume) storageView {
	var v storageView
	for _, volume := range volumes {
		name := volumeClaim(volume)
		if name == "" {
			continue
		}
		if claim := s.api.claims.get(namespace, name); claim != nil {
			v.claims = append(v.claims, claim)
		}
		if dv := s.api.imports.get(namespace, name); dv != nil {
			v.imports = append(v.imports, dv)
		}
	}
	return v
}

func (s storageView) claim(name string) *corev1.PersistentVolumeClaim {
	for _, c := range s.claims {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func (s storageView) dataVolume(name string) *cdiv1.DataVolume {
	for _, dv := range s.imports {
		if dv.Name == name {
			return dv
		}
	}
	return nil
}

// storageObstacle returns why the pod of an instance cannot be created yet because of its volumes, or
// nil.
func storageObstacle(vmi *virtv1.VirtualMachineInstance, v storageView) *obstacle {
	for _, volume := range vmi.Spec.Volumes {
		name := volumeClaim(volume)
		if name == "" {
			continue
		}
		claim := v.claim(name)
		if claim == nil {
			return &obstacle{
				reason:        reasonPVCNotFound,
				message:       fmt.Sprintf("PVC %s/%s does not exist, waiting for it to appear", vmi.Namespace, name),
				unschedulable: true,
			}
		}
		dv := v.dataVolume(name)
		if dv == nil || !ownedBy(claim, dv) {
			continue // a claim without a DataVolume is ready, and its volume concerns the scheduler
		}
		switch dv.Status.Phase {
		case cdiv1.Succeeded, cdiv1.PendingPopulation, cdiv1.WaitForFirstConsumer:
		default:
			if !populatesForConsumer(claim) {
				return &obstacle{quiet: true}
			}
		}
	}
	return nil
}

// dataVolumesReady returns the condition of an instance with DataVolumes, or nil.
func dataVolumesReady(v storageView) *virtv1.VirtualMachineInstanceCondition {
	if len(v.imports) == 0 {
		return nil
	}
	c := virtv1.VirtualMachineInstanceCondition{
		Type: virtv1.VirtualMachineInstanceDataVolumesReady, Status: corev1.ConditionTrue,
		Reason: virtv1.VirtualMachineInstanceReasonAllDVsReady, Message: "All of the VMI's DVs are bound and ready",
	}
	for _, dv := range v.imports {
		if ready := importCondition(dv, cdiv1.DataVolumeReady); ready == nil || ready.Status != corev1.ConditionTrue {
			c.Status, c.Reason = corev1.ConditionFalse, virtv1.VirtualMachineInstanceReasonNotAllDVsReady
			c.Message = "Not all of the VMI's DVs are ready"
		}
	}
	return &c
}

// volumeStatuses returns the status of the instance's volumes.
func volumeStatuses(vmi *virtv1.VirtualMachineInstance, v storageView) []virtv1.VolumeStatus {
	targets := diskTargets(vmi.Spec.Domain.Devices.Disks)
	var all []virtv1.VolumeStatus
	for _, volume := range vmi.Spec.Volumes {
		status := virtv1.VolumeStatus{Name: volume.Name, Target: targets[volume.Name]}
		if claim := v.claim(volumeClaim(volume)); claim != nil {
			overhead := virtv1.Percent("0.06")
			if m := claim.Spec.VolumeMode; m != nil && *m == corev1.PersistentVolumeBlock {
				overhead = "0"
			}
			status.PersistentVolumeClaimInfo = &virtv1.PersistentVolumeClaimInfo{
				ClaimName:          claim.Name,
				AccessModes:        claim.Spec.AccessModes,
				VolumeMode:         claim.Spec.VolumeMode,
				Capacity:           claim.Status.Capacity,
				Requests:           claim.Spec.Resources.Requests,
				FilesystemOverhead: &overhead,
			}
		}
		all = append(all, status)
	}
	sortByName(all)
	return all
}

// diskTargets returns the names of disks in the guest: vda, vdb and sda, sdb.
func diskTargets(disks []virtv1.Disk) map[string]string {
	targets, used := map[string]string{}, map[string]int{}
	for _, d := range disks {
		prefix := "sd"
		if busOf(d) == virtv1.DiskBusVirtio {
			prefix = "vd"
		}
		targets[d.Name] = prefix + string(rune('a'+used[prefix]%26))
		used[prefix]++
	}
	return targets
}

func busOf(d virtv1.Disk) virtv1.DiskBus {
	switch {
	case d.Disk != nil:
		return d.Disk.Bus
	case d.LUN != nil:
		return d.LUN.Bus
	case d.CDRom != nil:
		return d.CDRom.Bus
	}
	return ""
}

// migratable returns the condition LiveMigratable, and whether local disks have to be copied.
func migratable(vmi *virtv1.VirtualMachineInstance, v storageView) (virtv1.VirtualMachineInstanceCondition, virtv1.VirtualMachineInstanceMigrationMethod) {
	c := virtv1.VirtualMachineInstanceCondition{Type: virtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue}
	method := virtv1.LiveMigration
	refuse := func(reason, message string) {
		if c.Status == corev1.ConditionTrue {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
		}
	}
	if !podNetworkMigrates(vmi) {
		refuse(virtv1.VirtualMachineInstanceReasonInterfaceNotMigratable,
			"cannot migrate VMI which does not use masquerade or a migratable plugin to connect to the pod network")
	}
	for _, volume := range vmi.Spec.Volumes {
		name := volumeClaim(volume)
		if name == "" || volume.Ephemeral != nil {
			method = virtv1.BlockMigration
			continue
		}
		if claim := v.claim(name); claim == nil || !shared(claim) {
			method = virtv1.BlockMigration
			refuse(virtv1.VirtualMachineInstanceReasonDisksNotMigratable, fmt.Sprintf("cannot migrate VMI: PVC %s is not shared, "+
				"live migration requires that all PVCs must be shared (using ReadWriteMany access mode)", name))
		}
	}
	return c, method
}

func shared(claim *corev1.PersistentVolumeClaim) bool {
	for _, m := range claim.Spec.AccessModes {
		if m == corev1.ReadWriteMany {
			return true
		}
	}
	return false
}

func podNetworkMigrates(vmi *virtv1.VirtualMachineInstance) bool {
	for _, n := range vmi.Spec.Networks {
		if n.Pod == nil {
			continue
		}
		for _, i := range vmi.Spec.Domain.Devices.Interfaces {
			if i.Name == n.Name && i.Masquerade == nil {
				return false
			}
		}
	}
	return true
}
