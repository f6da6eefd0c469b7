package kubevirt

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Names of what belongs to a virtual machine.
const (
	managedBy     = "kubevirt-operator"
	cloudInitDisk = "cloudinitdisk"
	installerDisk = "cdrom"
	// maxInlineData is how much user data, and how much network data, KubeVirt
	// takes in the VirtualMachine itself.
	maxInlineData = 2048
	installerSize = "8Gi"
)

// machineLabels returns the labels of every object of a machine.
func machineLabels(m *v1alpha1.Machine) map[string]string {
	labels := map[string]string{
		v1alpha1.LabelMachine: m.Name, v1alpha1.LabelSourceMachine: m.Name, v1alpha1.LabelManagedBy: managedBy,
	}
	if cluster := m.Labels[v1alpha1.LabelClusterName]; cluster != "" {
		labels[v1alpha1.LabelClusterName] = cluster
	}
	return labels
}

// objectMeta returns the metadata of an object of a machine. In the machine's own cluster, the
// machine owns it.
func objectMeta(m *v1alpha1.Machine, name string, owned bool) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: m.Namespace, Name: name, Labels: machineLabels(m),
		Annotations: map[string]string{v1alpha1.AnnotationUID: string(m.UID)},
	}
	if owned {
		meta.OwnerReferences = kube.Owned(m, v1alpha1.GroupVersion.String(), "Machine")
	}
	return meta
}

// claimName returns the name of the PersistentVolumeClaim of a machine's disk.
func claimName(m *v1alpha1.Machine, name string) string { return kube.Name(m.Name, name) }

// renderClaim renders the PersistentVolumeClaim of a disk in a StorageClass.
func renderClaim(m *v1alpha1.Machine, d hypervisor.Disk, class string, owned bool) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: objectMeta(m, claimName(m, d.Name), owned),
		Spec:       claimSpec(d, class),
	}
}

// claimSpec renders the spec of a PersistentVolumeClaim.
func claimSpec(d hypervisor.Disk, class string) corev1.PersistentVolumeClaimSpec {
	access := cmp.Or(corev1.PersistentVolumeAccessMode(d.AccessMode), corev1.ReadWriteOnce)
	volume := cmp.Or(corev1.PersistentVolumeMode(d.VolumeMode), corev1.PersistentVolumeFilesystem)
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class,
		AccessModes:      []corev1.PersistentVolumeAccessMode{access},
		VolumeMode:       &volume,
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: d.Size}},
	}
}

// renderVM renders the VirtualMachine of a machine. class resolves the StorageClass of a disk;
// cloudInit is the Secret of the guest's first configuration, or empty if that is inline.
func renderVM(m *v1alpha1.Machine, w hypervisor.Desired, class func(string) string, options v1alpha1.KubeVirtOptions, cloudInit string, owned bool) *kubevirtv1.VirtualMachine {
	strategy := runStrategy(m.Spec.PowerState)
	vm := &kubevirtv1.VirtualMachine{
		ObjectMeta: objectMeta(m, m.Name, owned),
		Spec: kubevirtv1.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: machineLabels(m), Annotations: map[string]string{v1alpha1.AnnotationUID: string(m.UID)}},
				Spec:       kubevirtv1.VirtualMachineInstanceSpec{Domain: renderDomain(m, w, options)},
			},
		},
	}
	if cloudInit != "" || !hasInlineData(m) {
		vm.Labels[v1alpha1.LabelCarriedByEvents] = "true"
		vm.Spec.Template.ObjectMeta.Labels[v1alpha1.LabelCarriedByEvents] = "true"
	}
	spec := &vm.Spec.Template.Spec
	if host := cmp.Or(m.Spec.NodeName, w.Defaults.NodeName); host != "" {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: host}
	}
	installers := 0
	if m.Spec.OS != nil && m.Spec.OS.ISOURI != "" {
		installers = 1
	}
	diskBoot, nicBoot, cdromBoot := bootOrder(m.Spec.BootOrder, len(w.Disks), len(w.NICs), installers)
	for i, d := range w.Disks {
		source := claimSource(claimName(m, d.Name))
		if image := diskImage(m, w.Disks, d); image != "" {
			source = dataVolumeSource(claimName(m, d.Name))
			vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, renderDataVolume(m, claimName(m, d.Name), image, claimSpec(d, class(d.StorageClass))))
		}
		addDisk(spec, d.Name, source, diskTarget("virtio"), bootNumber(diskBoot, i))
	}
	if installers > 0 {
		addDisk(spec, installerDisk, dataVolumeSource(claimName(m, installerDisk)), cdromTarget(), bootNumber(cdromBoot, 0))
		vm.Spec.DataVolumeTemplates = append(vm.Spec.DataVolumeTemplates, renderDataVolume(m, claimName(m, installerDisk), m.Spec.OS.ISOURI,
			claimSpec(hypervisor.Disk{Size: resource.MustParse(installerSize)}, class(""))))
	}
	if w.UserData != "" || w.NetworkData != "" {
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirtv1.Disk{Name: cloudInitDisk, DiskDevice: diskTarget("virtio")})
		spec.Volumes = append(spec.Volumes, kubevirtv1.Volume{Name: cloudInitDisk, VolumeSource: kubevirtv1.VolumeSource{CloudInitNoCloud: renderCloudInit(w, cloudInit)}})
	}
	for i, n := range w.NICs {
		spec.Networks = append(spec.Networks, kubevirtv1.Network{Name: n.Name, NetworkSource: kubevirtv1.NetworkSource{
			Multus: &kubevirtv1.MultusNetwork{NetworkName: attachmentName(n, w.Defaults)}}})
		spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, renderInterface(n, bootNumber(nicBoot, i)))
	}
	return vm
}

// runStrategy returns the run strategy for a power state.
func runStrategy(power v1alpha1.PowerState) kubevirtv1.VirtualMachineRunStrategy {
	if power == v1alpha1.PowerStopped {
		return kubevirtv1.RunStrategyHalted
	}
	return kubevirtv1.RunStrategyAlways
}

// renderDomain renders processors, memory, firmware and features.
func renderDomain(m *v1alpha1.Machine, w hypervisor.Desired, options v1alpha1.KubeVirtOptions) kubevirtv1.DomainSpec {
	multiqueue, podInterface := true, false
	memory := w.Memory
	d := kubevirtv1.DomainSpec{
		CPU: &kubevirtv1.CPU{
			Cores: uint32(w.Cores), Threads: uint32(w.Threads), Sockets: uint32(w.Sockets), Model: options.CPUModel,
		},
		Memory:   &kubevirtv1.Memory{Guest: &memory},
		Firmware: &kubevirtv1.Firmware{UUID: m.UID, Serial: string(m.UID)},
		Devices:  kubevirtv1.Devices{NetworkInterfaceMultiQueue: &multiqueue, AutoattachPodInterface: &podInterface},
	}
	if m.Spec.Domain == nil {
		return d
	}
	if t := m.Spec.Domain.Machine; t != nil {
		d.Machine = &kubevirtv1.Machine{Type: machineType(t.Type)}
	}
	if f := m.Spec.Domain.Features; f != nil {
		d.Features = renderFeatures(*f)
	}
	if f := m.Spec.Domain.Firmware; f != nil && f.Bootloader.EFI {
		secure := f.Bootloader.SecureBoot
		d.Firmware.Bootloader = &kubevirtv1.Bootloader{EFI: &kubevirtv1.EFI{SecureBoot: &secure}}
		if secure {
			if d.Features == nil {
				d.Features = &kubevirtv1.Features{}
			}
			d.Features.SMM = enabledFeature()
		}
	}
	return d
}

// machineType returns a machine type that KubeVirt allows and that means the same.
func machineType(t string) string {
	if t == "pc-q35" {
		return "q35"
	}
	return t
}

// renderFeatures renders the features of a domain. HyperV is the set that is safe on every host.
func renderFeatures(f v1alpha1.DomainFeatures) *kubevirtv1.Features {
	out := &kubevirtv1.Features{ACPI: kubevirtv1.FeatureState{Enabled: f.ACPI}}
	if f.APIC != nil {
		out.APIC = &kubevirtv1.FeatureAPIC{FeatureState: kubevirtv1.FeatureState{Enabled: f.APIC}}
	}
	if f.HyperV != nil && *f.HyperV {
		retries := uint32(8191)
		out.Hyperv = &kubevirtv1.FeatureHyperv{
			Relaxed: enabledFeature(), VAPIC: enabledFeature(), VPIndex: enabledFeature(), Runtime: enabledFeature(), SyNIC: enabledFeature(), Reset: enabledFeature(),
			Frequencies: enabledFeature(), Spinlocks: &kubevirtv1.FeatureSpinlocks{FeatureState: *enabledFeature(), Retries: &retries},
			SyNICTimer: &kubevirtv1.SyNICTimer{FeatureState: *enabledFeature()},
		}
	}
	return out
}

// enabledFeature returns a feature that is on.
func enabledFeature() *kubevirtv1.FeatureState {
	yes := true
	return &kubevirtv1.FeatureState{Enabled: &yes}
}

// diskTarget returns a disk on a bus.
func diskTarget(bus kubevirtv1.DiskBus) kubevirtv1.DiskDevice {
	return kubevirtv1.DiskDevice{Disk: &kubevirtv1.DiskTarget{Bus: bus}}
}

// cdromTarget returns a CD drive.
func cdromTarget() kubevirtv1.DiskDevice {
	return kubevirtv1.DiskDevice{CDRom: &kubevirtv1.CDRomTarget{Bus: kubevirtv1.DiskBusSATA}}
}

// addDisk adds a volume as a device. boot is its number in the boot order, or nil.
func addDisk(spec *kubevirtv1.VirtualMachineInstanceSpec, name string, source kubevirtv1.VolumeSource, device kubevirtv1.DiskDevice, boot *uint) {
	spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirtv1.Disk{Name: name, DiskDevice: device, BootOrder: boot})
	spec.Volumes = append(spec.Volumes, kubevirtv1.Volume{Name: name, VolumeSource: source})
}

// claimSource returns a PersistentVolumeClaim as the source of a volume.
func claimSource(name string) kubevirtv1.VolumeSource {
	return kubevirtv1.VolumeSource{PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

// dataVolumeSource returns a DataVolume of dataVolumeTemplates as the source of a volume. The restore of a snapshot gives the
// volume and the template the name of the restored DataVolume. It would rename the claim of a claimSource only, and KubeVirt rejects a
// template that no volume refers to.
func dataVolumeSource(name string) kubevirtv1.VolumeSource {
	return kubevirtv1.VolumeSource{DataVolume: &kubevirtv1.DataVolumeSource{Name: name}}
}

// claimOf returns the PersistentVolumeClaim of a volume, or nothing. That of a DataVolume has the name of the DataVolume.
func claimOf(v kubevirtv1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return v.DataVolume.Name
	default:
		return ""
	}
}

// bootNumber returns the number of a device in the boot order, or nil.
func bootNumber(numbers []uint, i int) *uint {
	if i >= len(numbers) {
		return nil
	}
	return &numbers[i]
}

// diskImage returns the image of a disk, or nothing: the disk root has one, or the first disk if
// none has that name.
func diskImage(m *v1alpha1.Machine, disks []hypervisor.Disk, d hypervisor.Disk) string {
	boot := slices.IndexFunc(disks, func(d hypervisor.Disk) bool { return d.Name == v1alpha1.RootDisk })
	if m.Spec.OS == nil || d.Name != disks[max(boot, 0)].Name {
		return ""
	}
	return m.Spec.OS.ImageID
}

// checkImages returns a UserError if CDI would not import an image or an installer.
func checkImages(os *v1alpha1.MachineOS) error {
	if os == nil {
		return nil
	}
	for _, image := range []struct{ field, address string }{{"imageID", os.ImageID}, {"isoUri", os.ISOURI}} {
		u, err := url.Parse(image.address)
		if image.address != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
			return reconcile.UserError{Reason: "ImageNotSupported", Message: fmt.Sprintf(
				"spec.os.%s: KubeVirt imports images by HTTP, and %q is no such URL: write for example https://images.example.com/ubuntu-24.04.qcow2", image.field, image.address)}
		}
	}
	return nil
}

// renderDataVolume has CDI fill a claim from a URL before the machine starts.
func renderDataVolume(m *v1alpha1.Machine, name, url string, claim corev1.PersistentVolumeClaimSpec) kubevirtv1.DataVolumeTemplateSpec {
	labels := machineLabels(m)
	labels[v1alpha1.AnnotationUID] = string(m.UID)
	return kubevirtv1.DataVolumeTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{v1alpha1.AnnotationUID: string(m.UID)}},
		Spec: cdiv1.DataVolumeSpec{
			Source: &cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{URL: url}},
			PVC:    &claim,
		},
	}
}

// renderCloudInit renders the first configuration of a guest, inline or from a Secret.
func renderCloudInit(w hypervisor.Desired, secret string) *kubevirtv1.CloudInitNoCloudSource {
	if secret == "" {
		return &kubevirtv1.CloudInitNoCloudSource{UserData: w.UserData, NetworkData: w.NetworkData}
	}
	out, ref := &kubevirtv1.CloudInitNoCloudSource{}, &corev1.LocalObjectReference{Name: secret}
	if w.UserData != "" {
		out.UserDataSecretRef = ref
	}
	if w.NetworkData != "" {
		out.NetworkDataSecretRef = ref
	}
	return out
}

// needsSecret reports whether the guest's first configuration cannot be inline.
func needsSecret(w hypervisor.Desired) bool {
	return w.SecretUserData || len(w.UserData) > maxInlineData || len(w.NetworkData) > maxInlineData
}

// renderInterface renders a network interface.
func renderInterface(n hypervisor.NIC, boot *uint) kubevirtv1.Interface {
	return kubevirtv1.Interface{
		Name: n.Name, Model: cmp.Or(string(n.Model), "virtio"), MacAddress: n.MAC, BootOrder: boot,
		InterfaceBindingMethod: kubevirtv1.InterfaceBindingMethod{Bridge: &kubevirtv1.InterfaceBridge{}},
	}
}

// bootOrder numbers a machine's devices from 1 in the order of boot: for each kind in turn all
// devices of that kind. A device whose kind is not in order has no number. Without an order
// there are no numbers.
func bootOrder(order []v1alpha1.BootDevice, disks, nics, cdroms int) (disk, nic, cdrom []uint) {
	var next uint
	number := func(n int) (numbers []uint) {
		for range n {
			next++
			numbers = append(numbers, next)
		}
		return numbers
	}
	for _, device := range order {
		switch device {
		case v1alpha1.BootDisk:
			disk = number(disks)
		case v1alpha1.BootNetwork:
			nic = number(nics)
		case v1alpha1.BootCDROM:
			cdrom = number(cdroms)
		}
	}
	return disk, nic, cdrom
}
