// Package kubevirt creates virtual machines as objects of KubeVirt, in the cluster of the function or
// in another one.
package kubevirt

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Hypervisor creates virtual machines as VirtualMachine objects of a cluster.
type Hypervisor struct {
	// home is the client for the cluster of the Machines, and guests that for the cluster of the virtual
	// machines.
	home, guests *kube.Client
	// local is whether both are one cluster, so that Machines can own the objects created for them.
	local bool
	// provider is the name of the MachineProvider.
	provider string
	// endpoint is the server of the cluster of the virtual machines. It is empty if local.
	endpoint string
	options  v1alpha1.KubeVirtOptions
	defaults v1alpha1.ProviderDefaults
}

// Ensure implements hypervisor.Interface.
func (k *Hypervisor) Ensure(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) (hypervisor.State, error) {
	want.Defaults = k.defaults
	vm := &kubevirtv1.VirtualMachine{}
	err := k.guests.Get(ctx, m.Namespace, m.Name, vm)
	existed := err == nil
	var made creation
	if kube.NotFound(err) {
		made, err = k.createMachine(ctx, m, want)
		vm = made.vm
	}
	if err != nil {
		return hypervisor.State{}, k.toUserError(err)
	}
	if err := k.objects().adopt(ctx, m, vm); err != nil {
		return hypervisor.State{}, k.toUserError(err)
	}
	if !isMadeFor(vm, m) {
		return hypervisor.State{}, nameTakenError(vm)
	}
	claims, refused := made.claims, error(nil)
	if existed || made.hadClaims {
		if claims, refused, err = k.update(ctx, m, want, vm); err != nil {
			return hypervisor.State{}, k.toUserError(err)
		}
	}
	m.Status.Disks = readDisks(m, vm, want.Disks, claims)
	if !made.isConfigured {
		if err := k.handOverMachineConfig(ctx, m, want); err != nil {
			return hypervisor.State{}, k.toUserError(err)
		}
	}
	s, err := k.readState(ctx, m, vm, claims)
	if err != nil {
		return hypervisor.State{}, err
	}
	s.Handover, s.Refused, s.Incomplete = want.Handover, refused, waitsToGrow(vm, want.Disks, claims)
	return s, k.restart(ctx, m, vm, &s)
}

// Observe implements hypervisor.Observer.
func (k *Hypervisor) Observe(ctx context.Context, m *v1alpha1.Machine) (hypervisor.State, error) {
	vm := &kubevirtv1.VirtualMachine{}
	if err := k.guests.Get(ctx, m.Namespace, m.Name, vm); err != nil {
		if kube.NotFound(err) {
			return hypervisor.State{}, hypervisor.ErrGone
		}
		return hypervisor.State{}, err
	}
	if needsAdoption(vm, m) {
		return hypervisor.State{}, hypervisor.ErrGone // only Ensure changes it
	}
	if !isMadeFor(vm, m) {
		return hypervisor.State{}, nameTakenError(vm)
	}
	return k.readState(ctx, m, vm, nil)
}

// readState reads the state of a virtual machine: of its instance if it runs, and of its disks if
// it does not. claims are its disks if the caller has read or written them.
func (k *Hypervisor) readState(ctx context.Context, m *v1alpha1.Machine, vm *kubevirtv1.VirtualMachine, claims []corev1.PersistentVolumeClaim) (hypervisor.State, error) {
	s := vmState(vm, m.Status.Phase, m.Spec.PowerState)
	s.ProviderID, s.Polled = k.providerID(m), !k.local
	s.RestartToken = m.Status.RestartToken
	if s.Phase == v1alpha1.MachineRunning && vm.Status.Created {
		vmi := &kubevirtv1.VirtualMachineInstance{}
		err := k.guests.Get(ctx, m.Namespace, m.Name, vmi)
		if err == nil {
			addInstanceState(&s, vmi)
			s.StoragePending = unpluggedDisks(vm, vmi)
			s.RestartRequired = cmp.Or(s.RestartRequired, pendingSize(vm, vmi))
		}
		if err != nil && !kube.NotFound(err) {
			return hypervisor.State{}, err
		}
	}
	wasReady := meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionStorageReady)
	if s.StoragePending != "" || len(claims) == 0 && wasReady && s.Reason != reasonProvisioning {
		return s, nil
	}
	if len(claims) == 0 {
		var err error
		if claims, err = k.objects().listClaims(ctx, m); err != nil {
			return hypervisor.State{}, err
		}
	}
	// The claim that a restored disk had before is left.
	claims = slices.DeleteFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return !usesClaim(vm, c.Name) })
	if s.Reason == reasonProvisioning {
		claims = withMissing(claims, vm)
	}
	s.StoragePending = pendingClaims(claims)
	if s.StoragePending == "" && !wasReady && m.Status.Phase != v1alpha1.MachineRunning {
		countProvisionedDisks(claims, time.Now())
	}
	return s, nil
}

// providerID returns the name of a machine's virtual machine that is unique among all hypervisors.
func (k *Hypervisor) providerID(m *v1alpha1.Machine) string {
	if k.local {
		return hypervisor.LocalID(m.Namespace, m.Name)
	}
	return "kubevirt://" + k.provider + "/" + m.Namespace + "/" + m.Name
}
