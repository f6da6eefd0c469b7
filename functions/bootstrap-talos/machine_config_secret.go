package main

// The machine configuration of a node contains the keys of its cluster. It reaches the node through
// the hypervisor, and is never sent to an address, because any machine could answer there. Talos
// then starts without maintenance mode, and one Secret is all that has to be deleted once the node
// has shown a certificate of the cluster.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// provideConfig writes the configuration of a node into the Secret that its Machine names, and
// then annotates the Machine for create-vm, and with what the node is installed with.
func (n *nodeConfigurator) provideConfig(ctx context.Context, c *cluster, m *v1alpha1.Machine, config []byte) error {
	if err := n.secrets.checkKeys(ctx, c); err != nil {
		return err
	}
	if err := n.writeConfigSecret(ctx, m, config); err != nil {
		return err
	}
	before := m.DeepCopy()
	sum := sha256.Sum256(config)
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMachineConfig, hex.EncodeToString(sum[:]))
	parts, err := talos.PartsOf(config)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationNodeConfig, parts.String())
	wrote, err := n.kube.Patch(ctx, before, m)
	switch {
	case kube.NotFound(err):
		return nil
	case kube.Conflict(err), err == nil && !wrote:
		return cmp.Or(n.withdrawConfig(ctx, before), err)
	default:
		return err
	}
}

// withdrawConfig deletes the Secret of a node that another delivery has seen with its
// configuration meanwhile.
func (n *nodeConfigurator) withdrawConfig(ctx context.Context, m *v1alpha1.Machine) error {
	now := &v1alpha1.Machine{}
	err := n.kube.Get(ctx, m.Namespace, m.Name, now)
	if kube.NotFound(err) || (err == nil && (now.UID != m.UID || !plan.IsInstalled(now))) {
		return nil
	}
	if err != nil {
		return err
	}
	err = n.kube.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.MachineConfigSecret()}})
	if kube.NotFound(err) {
		return nil
	}
	return err
}

// machineConfigSecret returns the Secret with the configuration of a node. Its Machine owns it.
func machineConfigSecret(m *v1alpha1.Machine, config []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.MachineConfigSecret(),
			Labels:          map[string]string{v1alpha1.LabelClusterName: m.Labels[v1alpha1.LabelClusterName], v1alpha1.LabelManagedBy: plan.FunctionName},
			OwnerReferences: kube.Owned(m, v1alpha1.GroupVersion.String(), "Machine"),
		},
		Data: map[string][]byte{v1alpha1.MachineConfigKey: config},
	}
}

// writeConfigSecret writes a configuration into the Secret that its Machine names. A Secret with
// another owner is a UserError.
func (n *nodeConfigurator) writeConfigSecret(ctx context.Context, m *v1alpha1.Machine, config []byte) error {
	err := n.kube.Create(ctx, machineConfigSecret(m, config))
	if !kube.AlreadyExists(err) {
		return err
	}
	secret := &corev1.Secret{}
	if err := n.kube.Get(ctx, m.Namespace, m.MachineConfigSecret(), secret); err != nil {
		return err
	}
	if !metav1.IsControlledBy(secret, m) {
		return reconcile.UserError{Reason: "NameTaken", Message: fmt.Sprintf("Secret %s was not created for Machine %s: delete it", secret.Name, m.Name)}
	}
	if bytes.Equal(secret.Data[v1alpha1.MachineConfigKey], config) {
		return nil
	}
	before := secret.DeepCopy()
	secret.Data = map[string][]byte{v1alpha1.MachineConfigKey: config}
	_, err = n.kube.Patch(ctx, before, secret)
	return err
}
