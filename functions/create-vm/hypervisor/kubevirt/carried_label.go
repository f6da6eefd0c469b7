package kubevirt

import (
	"slices"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// hasInlineData reports whether a machine has a first configuration that its requester has written into the spec. It may hold secrets.
func hasInlineData(m *v1alpha1.Machine) bool {
	return m.Spec.CloudInit != nil && m.Spec.CloudInit.UserData+m.Spec.CloudInit.NetworkData != ""
}

// removeCarriedLabel removes the label that has events carry a virtual machine and its instances, if another user has written a first
// configuration into the virtual machine since create-vm has set the label. Nothing sets it again.
func removeCarriedLabel(m *v1alpha1.Machine, want hypervisor.Desired, vm *kubevirtv1.VirtualMachine) {
	if !slices.ContainsFunc(vm.Spec.Template.Spec.Volumes, func(v kubevirtv1.Volume) bool { return mayHoldSecret(m, want, v) }) {
		return
	}
	delete(vm.Labels, v1alpha1.LabelCarriedByEvents)
	delete(vm.Spec.Template.ObjectMeta.Labels, v1alpha1.LabelCarriedByEvents)
}

// mayHoldSecret reports whether a volume has an inline configuration other than what create-vm renders for a machine whose requester
// has written none: user data that configures nothing, and the addresses.
func mayHoldSecret(m *v1alpha1.Machine, want hypervisor.Desired, v kubevirtv1.Volume) bool {
	var encoded, userData, networkData string
	if c := v.CloudInitNoCloud; c != nil {
		encoded, userData, networkData = c.UserDataBase64+c.NetworkDataBase64, c.UserData, c.NetworkData
	}
	if c := v.CloudInitConfigDrive; c != nil {
		encoded, userData, networkData = c.UserDataBase64+c.NetworkDataBase64, c.UserData, c.NetworkData
	}
	isRendered := !hasInlineData(m) && networkData == want.NetworkData
	return encoded != "" || userData != "" && userData != hypervisor.EmptyUserData || networkData != "" && !isRendered
}
