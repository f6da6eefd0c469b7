package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	simtalos "github.com/vitistack/stack/tests/sim/talos"
)

// playLowerLayers plays the layers below: addresses, hypervisor and virtual machines.
func (s *env) playLowerLayers(ctx context.Context, in event.Event) (*event.Event, error) {
	ref, err := events.RefOf(in)
	if err != nil {
		return nil, err
	}
	if ref.Kind == "IPAllocation" {
		return nil, kube.OnConflict(func() error { return s.allocate(ctx, ref.Name) })
	}
	return nil, kube.OnConflict(func() error { return s.operate(ctx, ref.Name) })
}

func (s *env) allocate(ctx context.Context, name string) error {
	a := &v1alpha2.IPAllocation{}
	if err := s.kube.Get(ctx, s.namespace, name, a); err != nil || a.Status.Phase == v1alpha2.IPAllocationAllocated {
		return ignoreMissing(err)
	}
	before := a.DeepCopy()
	if r := a.Spec.RequestedAddress; s.isOutside(r) {
		a.Status.Phase, a.Status.Message = v1alpha2.IPAllocationError, "address "+r+" is not in the network: ask for another"
		_, err := s.kube.PatchStatus(ctx, before, a)
		return ignoreMissing(err)
	}
	a.Status.Phase, a.Status.Address = v1alpha2.IPAllocationAllocated, cmp.Or(a.Spec.RequestedAddress, s.address(string(a.UID)))
	_, err := s.kube.PatchStatus(ctx, before, a)
	return ignoreMissing(err)
}

// isOutside reports whether a requested address is not in the network.
func (s *env) isOutside(requested string) bool {
	address, err := netip.ParseAddr(requested)
	return err == nil && !s.net.Prefix().Contains(address)
}

// place returns the number of a holder's address, or of a new one.
func (s *env) place(holder string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[holder] == 0 {
		s.held[holder] = s.next
		s.next++
	}
	return s.held[holder]
}

func (s *env) address(holder string) string { return s.net.Address(s.place(holder)).Addr().String() }

func (s *env) operate(ctx context.Context, name string) error {
	m := &v1alpha1.Machine{}
	if err := s.kube.Get(ctx, s.namespace, name, m); err != nil {
		return ignoreMissing(err)
	}
	switch {
	case m.DeletionTimestamp != nil && slices.Contains(m.Finalizers, v1alpha1.FinalizerEtcd):
		return nil
	case m.DeletionTimestamp != nil:
		return s.destroy(ctx, m)
	}
	before := m.DeepCopy()
	if m.Status.VMName == "" && s.closed.Load() {
		return errors.New("no addresses are allocated")
	}
	if m.Status.VMName == "" {
		address, mac := s.address(string(m.UID)), s.mac(m)
		if err := s.configureNetwork(ctx, m, address, mac); err != nil {
			return err
		}
		m.Status.IPAddresses = []string{address}
	}
	if err := s.handOver(ctx, m); err != nil {
		return err
	}
	if err := s.start(ctx, m); err != nil {
		return err
	}
	_, err := s.kube.PatchStatus(ctx, before, m)
	return ignoreMissing(err)
}

// handOver provides or removes the machine configuration of a node, as create-vm does.
func (s *env) handOver(ctx context.Context, m *v1alpha1.Machine) error {
	held := meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionMachineConfigRemoved)
	digest := m.Annotations[v1alpha1.AnnotationMachineConfig]
	switch {
	case plan.IsInstalled(m) && held:
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.MachineConfigSecret()}}
		if err := s.kube.Delete(ctx, secret); err != nil && !kube.NotFound(err) {
			return err
		}
		s.seed(m, nil)
		kube.SetCondition(&m.Status.Conditions, m.Generation, v1alpha1.ConditionMachineConfigRemoved, true, "Removed", "the node has it")
	case !plan.IsInstalled(m) && digest != "" && !m.HoldsMachineConfig():
		secret := &corev1.Secret{}
		if err := s.kube.Get(ctx, m.Namespace, m.MachineConfigSecret(), secret); err != nil {
			return ignoreMissing(err)
		}
		s.seed(m, secret.Data[v1alpha1.MachineConfigKey])
		kube.SetCondition(&m.Status.Conditions, m.Generation, v1alpha1.ConditionMachineConfigRemoved, false, "Held", v1alpha1.MachineConfigHeldMessage(digest))
	}
	return nil
}

// start starts the virtual machine of a Machine once it has its configuration, and restarts it on
// request.
func (s *env) start(ctx context.Context, m *v1alpha1.Machine) error {
	switch {
	case m.Status.VMName == "" && !m.HoldsMachineConfig() && !plan.IsInstalled(m):
		kube.SetReady(&m.Status.Conditions, m.Generation, false, plan.ReasonWaitingForMachineConfig, "waiting for its machine configuration")
		return nil
	case m.Status.VMName != "" && m.Spec.PowerState == v1alpha1.PowerStopped:
		_ = s.fleet.PowerOff(string(m.UID))
		m.Status.Phase = v1alpha1.MachineStopped
		kube.SetReady(&m.Status.Conditions, m.Generation, true, "Stopped", "the machine is off because spec.powerState is Stopped")
		return nil
	case m.Status.Phase == v1alpha1.MachineRunning && m.Spec.RestartToken == m.Status.RestartToken:
		return nil
	case m.Status.VMName != "":
		_ = s.fleet.PowerOff(string(m.UID))
		if s.stopped.Load() {
			return nil
		}
	}
	if err := s.power(ctx, m); err != nil {
		return err
	}
	if s.started != nil {
		s.started(s, m)
	}
	m.Status.Phase, m.Status.VMName, m.Status.RestartToken = v1alpha1.MachineRunning, m.Name, m.Spec.RestartToken
	kube.SetReady(&m.Status.Conditions, m.Generation, true, "MachineRunning", "the machine is running")
	return nil
}

// seed sets the machine configuration that the node of a machine finds at its next start.
func (s *env) seed(m *v1alpha1.Machine, config []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds[string(m.UID)] = config
}

func (s *env) mac(m *v1alpha1.Machine) string {
	return fmt.Sprintf("02:00:00:00:00:%02x", s.place(string(m.UID)))
}

func (s *env) power(ctx context.Context, m *v1alpha1.Machine) error {
	s.mu.Lock()
	config := s.seeds[string(m.UID)]
	s.mu.Unlock()
	if s.seedless {
		config = nil
	}
	return s.fleet.PowerOn(ctx, simtalos.Machine{
		ID: string(m.UID), Links: []simtalos.Link{{Name: "eth0", MAC: s.mac(m), Temporary: s.temporary}}, Static: true,
		Address: s.net.Address(s.place(string(m.UID))), Version: "v" + m.Spec.OS.Version, Kind: "nocloud", Preinstalled: true,
		Disks: []simtalos.Disk{{Device: "/dev/vda", Size: 40 << 30}}, Skew: time.Duration(s.skew.Load()), Seed: config,
	})
}

// configureNetwork creates the NetworkConfiguration of a machine and allocates its address. As create-vm does, it refuses a Machine
// that names no network where there are several to choose from.
func (s *env) configureNetwork(ctx context.Context, m *v1alpha1.Machine, address, mac string) error {
	nn, err := network.Find(ctx, s.kube, m.Namespace, m.Spec.NetworkNamespaceName)
	if err != nil {
		return err
	}
	nc := &v1alpha1.NetworkConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, Labels: map[string]string{v1alpha1.LabelClusterName: m.Labels[v1alpha1.LabelClusterName]}, // as create-vm does
		},
		Spec: v1alpha1.NetworkConfigurationSpec{NetworkNamespaceName: nn.Name, NetworkInterfaces: []v1alpha1.InterfaceSpec{{Name: "eth0", MACAddress: v1alpha1.MACAddress(mac)}}},
	}
	if err := s.kube.Create(ctx, nc); err != nil {
		if !kube.AlreadyExists(err) {
			return err
		}
		if err := s.kube.Get(ctx, m.Namespace, m.Name, nc); err != nil {
			return err
		}
	}
	before := nc.DeepCopy()
	nc.Status.Phase, nc.Status.NetworkNamespaceName = v1alpha1.NetworkConfigurationReady, nn.Name
	nc.Status.NetworkInterfaces = []v1alpha1.InterfaceStatus{{
		Name: "eth0", MACAddress: v1alpha1.MACAddress(mac), IPAllocated: true, AllocationMethod: v1alpha2.AllocationStatic,
		IPv4Addresses: []string{address}, IPv4Subnet: s.net.Prefix().String(), IPv4Gateway: s.net.Prefix().Addr().Next().String(),
	}}
	_, err = s.kube.PatchStatus(ctx, before, nc)
	return err
}

func (s *env) destroy(ctx context.Context, m *v1alpha1.Machine) error {
	_ = s.fleet.PowerOff(string(m.UID))
	if err := s.fleet.Destroy(string(m.UID)); err != nil {
		return err
	}
	nc := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	if err := s.kube.Delete(ctx, nc); err != nil {
		return err
	}
	before := m.DeepCopy()
	if !kube.RemoveFinalizer(m, v1alpha1.FinalizerMachine) {
		return nil
	}
	_, err := s.kube.Patch(ctx, before, m)
	return ignoreMissing(err)
}

func ignoreMissing(err error) error {
	if kube.NotFound(err) {
		return nil
	}
	return err
}
