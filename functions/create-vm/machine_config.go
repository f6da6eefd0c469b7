package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reasonWaitingForMachineConfig is the reason of Ready of a machine that has its addresses and
// waits for its machine configuration.
const reasonWaitingForMachineConfig = "WaitingForMachineConfig"

// decideHandover decides what a hypervisor does with the machine configuration of a node:
//
//	not a node of a cluster                        nothing
//	the node has it, and the hypervisor may too    take
//	it is provided, and the hypervisor lacks it    give
//	otherwise                                      nothing
//
// A virtual machine whose disk is created again must find no configuration: a control plane
// would join etcd before its earlier member has left.
func decideHandover(m *v1alpha1.Machine) hypervisor.Handover {
	removed := meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionMachineConfigRemoved)
	switch {
	case m.MachineConfigSecret() == "":
		return hypervisor.HandoverNone
	case m.Installed() && !removed:
		return hypervisor.HandoverRemove
	case !m.Installed() && m.Annotations[v1alpha1.AnnotationMachineConfig] != "" && !m.HoldsMachineConfig():
		return hypervisor.HandoverProvide
	default:
		return hypervisor.HandoverNone
	}
}

// needsOnlyAddresses reports whether a Machine is a new node, for which nothing can be created at a hypervisor before its cluster
// provides the machine configuration. The cluster waits for its addresses. Its NetworkConfiguration is its own, and needs no finalizer
// of the Machine.
func needsOnlyAddresses(m *v1alpha1.Machine) bool {
	return m.MachineConfigSecret() != "" && m.Annotations[v1alpha1.AnnotationMachineConfig] == "" && !m.Installed() &&
		m.Status.VMName == "" && len(m.Spec.Networks) == 0
}

// addMachineConfig sets the machine configuration of a node as user data. It returns a
// WaitError if the configuration does not exist yet. If the virtual machine exists, and always
// after the node has its configuration, the user data configures nothing.
func (f *function) addMachineConfig(ctx context.Context, m *v1alpha1.Machine, want *hypervisor.Desired) error {
	want.UserData, want.SecretUserData, want.Handover = hypervisor.EmptyUserData, true, decideHandover(m)
	exists := m.Status.VMName != ""
	if m.Installed() || (exists && want.Handover == hypervisor.HandoverNone) {
		return nil
	}
	digest := m.Annotations[v1alpha1.AnnotationMachineConfig]
	if digest == "" {
		return reconcile.WaitError{Reason: reasonWaitingForMachineConfig, Message: fmt.Sprintf("waiting for the machine configuration of KubernetesCluster %s", m.Labels[v1alpha1.LabelClusterName])}
	}
	secret := &corev1.Secret{}
	err := f.kube.Get(ctx, m.Namespace, m.MachineConfigSecret(), secret)
	if err != nil && !kube.NotFound(err) {
		return err
	}
	data := secret.Data[v1alpha1.MachineConfigKey]
	switch {
	case err != nil || configDigest(data) != digest:
		return reconcile.WaitError{Reason: reasonWaitingForMachineConfig, Message: fmt.Sprintf("waiting for Secret %s to have the machine configuration of KubernetesCluster %s",
			m.MachineConfigSecret(), m.Labels[v1alpha1.LabelClusterName])}
	case !metav1.IsControlledBy(secret, m):
		return reconcile.UserError{Reason: "CloudInitSecretNotAllowed", Message: fmt.Sprintf("Secret %s was not created for this machine: delete it", secret.Name)}
	}
	want.UserData = string(data)
	return nil
}

// removeMachineConfig removes the machine configuration of a node that has it from KubeVirt and deletes its
// Secret. If a request for that fails it returns false, and the caller reconciles the whole Machine, which reports why.
func (f *function) removeMachineConfig(ctx context.Context, m *v1alpha1.Machine) (isRemoved bool, err error) {
	if f.local.RemoveMachineConfig(ctx, m) != nil || f.deleteMachineConfigSecret(ctx, m) != nil {
		return false, nil
	}
	before := m.DeepCopy()
	setMachineConfigRemoved(m, hypervisor.HandoverRemove)
	_, err = f.patchStatus(ctx, before, m, reconcile.Outcome{Message: "removed the machine configuration from the hypervisor"})
	return err == nil, err
}

// deleteMachineConfigSecret deletes the Secret with the machine configuration of a node that
// has it.
func (f *function) deleteMachineConfigSecret(ctx context.Context, m *v1alpha1.Machine) error {
	secret := &corev1.Secret{}
	err := f.kube.Get(ctx, m.Namespace, m.MachineConfigSecret(), secret)
	if kube.NotFound(err) || (err == nil && !metav1.IsControlledBy(secret, m)) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.kube.Delete(ctx, secret)
}

// configDigest returns the digest of a machine configuration, as bootstrap-talos annotates it.
func configDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
