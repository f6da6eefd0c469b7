package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// networkReconciler reads, creates, and releases the NetworkConfigurations of Machines.
type networkReconciler struct {
	kube *kube.Client
	// optionalPools is whether namespaces that may use no NetworkPool may name any bridge.
	optionalPools bool
}

// networkError is a UserError about a network of a machine.
type networkError struct {
	reconcile.UserError
	network string
}

// Unwrap returns the UserError.
func (u networkError) Unwrap() error { return u.UserError }

// ensure publishes the MAC addresses of a machine to layer 2, and returns its
// interfaces when each has its addresses. Until then it returns a WaitError, or a UserError.
// If a NetworkConfiguration is missing it publishes nothing, so that the machine can still use
// other networks.
func (r networkReconciler) ensure(ctx context.Context, m *v1alpha1.Machine) ([]hypervisor.NIC, error) {
	var configurations []*v1alpha1.NetworkConfiguration
	for _, n := range machineNetworks(m) {
		nc, err := r.find(ctx, m, n)
		if err != nil {
			return nil, err
		}
		configurations = append(configurations, nc)
	}
	var nics []hypervisor.NIC
	for i, n := range machineNetworks(m) {
		nc := configurations[i]
		name, err := r.publish(ctx, m, n, nc)
		if err != nil {
			return nil, err
		}
		joined, why, failed := interfaceFromStatus(nc, n, name, interfaceMAC(m, n))
		if why != "" && m.Status.VMName == "" {
			if err := r.releaseDeleted(ctx, m, configurations); err != nil {
				return nil, err
			}
		}
		switch {
		case failed:
			return nil, networkError{reconcile.UserError{Reason: "NetworkFailed", Message: why}, nc.Name}
		case why != "":
			return nil, reconcile.WaitError{Reason: reasonWaitingForAddress, Message: why}
		}
		if err := r.checkBridge(ctx, nc, joined); err != nil {
			if m.Status.VMName == "" {
				err = cmp.Or(r.releaseDeleted(ctx, m, configurations), err)
			}
			return nil, err
		}
		nics = append(nics, joined)
	}
	return nics, nil
}

// checkBridge returns a UserError unless a NetworkPool of the namespace lists the bridge that
// a NetworkConfiguration names, with the VLAN of its network. A bridge selects another
// physical network, where the VLAN may belong to another tenant.
func (r networkReconciler) checkBridge(ctx context.Context, nc *v1alpha1.NetworkConfiguration, n hypervisor.NIC) error {
	if n.Bridge == "" {
		return nil
	}
	pools, err := network.Pools(ctx, r.kube, nc.Namespace, r.optionalPools)
	if err != nil {
		return err
	}
	if why := pools.CheckBridge(n.Bridge, n.VLAN); why != "" {
		return networkError{reconcile.UserError{Reason: reasonBridgeNotAllowed, Message: fmt.Sprintf("NetworkConfiguration %s: %s", nc.Name, why)}, nc.Name}
	}
	return nil
}

// reasonBridgeNotAllowed is the reason of a Machine whose NetworkConfiguration names a bridge that no
// NetworkPool lists.
const reasonBridgeNotAllowed = "BridgeNotAllowed"

// publish writes into a NetworkConfiguration that a machine uses it, and the MAC
// address of an interface unless the NetworkConfiguration is the machine's own. It returns the
// name that the interface has there. If the Machine has been deleted, or its spec changed, since it was read, publish returns an error after
// a write: the delivery of the deletion may have ended before, and nothing else would release the interface.
func (r networkReconciler) publish(ctx context.Context, m *v1alpha1.Machine, n v1alpha1.MachineNetwork, nc *v1alpha1.NetworkConfiguration) (name string, err error) {
	before, name := nc.DeepCopy(), n.Name
	if !metav1.IsControlledBy(nc, m) {
		if name, err = r.claimInterface(ctx, m, n, nc); err != nil {
			return "", err
		}
	}
	network.AddUser(nc, m.Name)
	wrote, err := r.kube.Patch(ctx, before, nc)
	if wrote && err == nil {
		err = r.kube.CheckSpecCurrent(ctx, m)
	}
	if message, refused := kube.RejectionMessage(err); refused {
		return "", networkError{reconcile.UserError{Reason: "NetworkFailed", Message: fmt.Sprintf(
			"the API server refuses interface %s in NetworkConfiguration %s (%s): remove an interface from it, or delete the Machine and create it again with another NetworkConfiguration in spec.networks", name, nc.Name, message)}, nc.Name}
	}
	return name, err
}

// releaseDeleted releases the networks that are being deleted while the machine waits
// for others, or may not use their bridge, and so has no virtual machine.
func (r networkReconciler) releaseDeleted(ctx context.Context, m *v1alpha1.Machine, configurations []*v1alpha1.NetworkConfiguration) error {
	for _, nc := range configurations {
		if nc.DeletionTimestamp == nil {
			continue
		}
		if err := r.release(ctx, m, nc); err != nil {
			return err
		}
	}
	return nil
}

// find returns the NetworkConfiguration of an interface. A machine without
// spec.networks has one of its own.
func (r networkReconciler) find(ctx context.Context, m *v1alpha1.Machine, n v1alpha1.MachineNetwork) (*v1alpha1.NetworkConfiguration, error) {
	nc := &v1alpha1.NetworkConfiguration{}
	err := r.kube.Get(ctx, m.Namespace, n.NetworkName, nc)
	switch {
	case err == nil:
		return nc, checkConfigurationUsable(m, nc)
	case !kube.NotFound(err):
		return nil, err
	case len(m.Spec.Networks) > 0:
		return nil, networkError{reconcile.UserError{Reason: "NetworkConfigurationNotFound", Message: fmt.Sprintf(
			"NetworkConfiguration %s does not exist: create it, or name another in spec.networks", n.NetworkName)}, n.NetworkName}
	}
	return r.ensureOwn(ctx, m)
}

// createNew creates the NetworkConfiguration of a new machine, and reports whether
// the delivery is done: the status that layer 2 writes into it causes the next event, and
// resync includes machines without a phase. An error shows in the next step.
func (r networkReconciler) createNew(ctx context.Context, m *v1alpha1.Machine) bool {
	if m.Status.Phase != "" || len(m.Spec.Networks) > 0 {
		return false
	}
	nc, err := r.ensureOwn(ctx, m)
	return err == nil && isNew(nc)
}

// ensureOwn returns the NetworkConfiguration of a machine without spec.networks,
// and creates it if it is missing.
func (r networkReconciler) ensureOwn(ctx context.Context, m *v1alpha1.Machine) (*v1alpha1.NetworkConfiguration, error) {
	name, err := r.networkOf(ctx, m)
	var unresolved network.Unresolved
	if errors.As(err, &unresolved) {
		return nil, reconcile.UserError{Reason: unresolved.Reason, Message: unresolved.Message}
	}
	if err != nil {
		return nil, err
	}
	nc := ownConfiguration(m, name)
	err = r.kube.Create(ctx, nc)
	if kube.AlreadyExists(err) {
		if err := r.kube.Get(ctx, m.Namespace, m.Name, nc); err != nil {
			return nil, err
		}
		return nc, checkConfigurationUsable(m, nc)
	}
	return nc, err
}

// networkOf returns the name of the NetworkNamespace of a machine without spec.networks. It returns network.Unresolved if there is none.
func (r networkReconciler) networkOf(ctx context.Context, m *v1alpha1.Machine) (string, error) {
	if m.Spec.NetworkNamespaceName == "" {
		return network.FindOnly(ctx, r.kube, m.Namespace)
	}
	_, err := network.Find(ctx, r.kube, m.Namespace, m.Spec.NetworkNamespaceName)
	return m.Spec.NetworkNamespaceName, err
}

// isNew reports whether a NetworkConfiguration is a machine's own and layer 2 has not
// written its status yet, so that the machine need not reconcile. The status is never empty, because the API
// server sets observedGeneration to -1.
func isNew(nc *v1alpha1.NetworkConfiguration) bool {
	return isOwn(nc) && nc.DeletionTimestamp == nil && nc.Status.Phase == "" && len(nc.Status.NetworkInterfaces) == 0
}

// isOwn reports whether a NetworkConfiguration is a machine's own. No other machine uses it.
func isOwn(nc *v1alpha1.NetworkConfiguration) bool {
	owner := metav1.GetControllerOf(nc)
	return owner != nil && owner.Kind == "Machine" && owner.Name == nc.Name
}

// checkConfigurationUsable returns a UserError for another machine's own NetworkConfiguration, and a
// WaitError for one of an earlier machine of the same name or one that is being deleted,
// unless its deletion waits for this machine.
func checkConfigurationUsable(m *v1alpha1.Machine, nc *v1alpha1.NetworkConfiguration) error {
	owner := metav1.GetControllerOf(nc)
	ofMachine := owner != nil && owner.Kind == "Machine"
	switch going := nc.DeletionTimestamp != nil && !slices.Contains(network.Users(nc), m.Name); {
	case ofMachine && owner.Name != m.Name:
		return networkError{reconcile.UserError{Reason: "NetworkConfigurationNotFound", Message: fmt.Sprintf(
			"NetworkConfiguration %s belongs to Machine %s: name another NetworkConfiguration in spec.networks, or remove spec.networks to get one of its own", nc.Name, owner.Name)}, nc.Name}
	case ofMachine && (going || owner.UID != m.UID):
		return fmt.Errorf("use NetworkConfiguration %s/%s: it is being deleted", nc.Namespace, nc.Name)
	case going:
		return networkError{reconcile.UserError{Reason: "NetworkConfigurationNotFound", Message: fmt.Sprintf(
			"NetworkConfiguration %s is being deleted: name another in spec.networks, or create it again when it is gone", nc.Name)}, nc.Name}
	default:
		return nil
	}
}

// releaseAll removes a machine's interfaces from its networks, and returns what it still
// waits for.
func (r networkReconciler) releaseAll(ctx context.Context, m *v1alpha1.Machine) (waitsFor string, err error) {
	configurations, err := r.usedBy(ctx, m)
	if err != nil {
		return "", err
	}
	for i := range configurations {
		nc := &configurations[i]
		if err := r.release(ctx, m, nc); err != nil {
			return "", err
		}
		if !metav1.IsControlledBy(nc, m) {
			continue
		}
		if err := r.kube.Delete(ctx, nc); err != nil {
			return "", err
		}
		if err := r.kube.Get(ctx, m.Namespace, nc.Name, nc); !kube.NotFound(err) {
			waitsFor = "NetworkConfiguration " + nc.Name
		}
	}
	return waitsFor, nil
}

// usedBy returns the NetworkConfigurations that a machine may use. The spec does
// not name all of them, because it may have named others before there was a virtual machine.
func (r networkReconciler) usedBy(ctx context.Context, m *v1alpha1.Machine) ([]v1alpha1.NetworkConfiguration, error) {
	const madeAndDeleted = 2
	if len(m.Spec.Networks) == 0 && m.Generation <= madeAndDeleted {
		own := v1alpha1.NetworkConfiguration{}
		err := r.kube.Get(ctx, m.Namespace, m.Name, &own)
		if kube.NotFound(err) {
			return nil, nil
		}
		return []v1alpha1.NetworkConfiguration{own}, err
	}
	list := &v1alpha1.NetworkConfigurationList{}
	if err := r.kube.List(ctx, m.Namespace, "", list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(nc v1alpha1.NetworkConfiguration) bool {
		named := slices.ContainsFunc(machineNetworks(m), func(n v1alpha1.MachineNetwork) bool { return n.NetworkName == nc.Name })
		return !named && !metav1.IsControlledBy(&nc, m) && !slices.Contains(network.Users(&nc), m.Name)
	}), nil
}

// release removes a machine's interfaces from a network. A deleted machine of the same
// name leaves what the present one uses.
func (r networkReconciler) release(ctx context.Context, m *v1alpha1.Machine, nc *v1alpha1.NetworkConfiguration) error {
	before := nc.DeepCopy()
	if metav1.IsControlledBy(nc, m) || releaseInterfaces(nc, m) || m.DeletionTimestamp != nil {
		network.RemoveUser(nc, m.Name)
	}
	_, err := r.kube.Patch(ctx, before, nc)
	if kube.NotFound(err) {
		return nil
	}
	return err
}
