package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// The machine configuration of a node, with the keys of its cluster, goes to its machine
// through the hypervisor, and never to whoever answers at its address. All of it goes this
// way, not only a secret by which the node would ask for the rest: Talos then never comes
// to maintenance mode, and one Secret is all that there is to clean up. A configuration is
// provided until its node has been seen with a certificate of the cluster.

// reasonWaitingForMachineConfig is the reason of Ready of a Machine that has its addresses,
// and is made as soon as create-vm finds its configuration.
const reasonWaitingForMachineConfig = "WaitingForMachineConfig"

// provided tells whether the configuration of a machine's node is in its Secret.
func provided(m *v1alpha1.Machine) bool { return m.Annotations[v1alpha1.AnnotationMachineConfig] != "" }

// unprovided are those of some members whose configurations have to be provided: also
// where create-vm says that it does not find one.
func (c *cluster) unprovided(members []member) []member {
	var found []member
	for _, m := range members {
		machine := c.machines[m.name]
		if !provided(machine) || (c.patient && readyReason(machine) == reasonWaitingForMachineConfig) {
			found = append(found, m)
		}
	}
	return found
}

// configure does the next step until the node of a machine has its configuration: it
// provides that, waits for the machine to be started with it, and marks the Machine when
// the node shows a certificate of the cluster. It returns what the node is, if it asked.
func (f *function) configure(ctx context.Context, c *cluster, m *v1alpha1.Machine, config []byte) (nodeState, error) {
	if m.MachineConfigSecret() == "" {
		return "", fault{"MachineOutdated", fmt.Sprintf("Machine %s was made without a place for a machine configuration: delete it, and the cluster makes another", m.Name)}
	}
	if config != nil {
		if err := f.provide(ctx, c, m, config); err != nil {
			return "", err
		}
	}
	if !running(m) {
		return "", waits{reason: "WaitingForMachines", message: "waits for machine " + m.Name + whyNotReady(m)}
	}
	state, shown := probe(ctx, addressOf(m), c.access)
	switch state {
	case stateOurs:
		return state, f.markInstalled(ctx, m)
	case stateForeign:
		return state, fault{"ForeignNode", fmt.Sprintf(
			"the node at %s has a configuration of another cluster: reset it, or delete Machine %s", addressOf(m), m.Name)}
	case stateSkewed:
		return state, skewed(m)
	case stateMaintenance:
		return state, f.restartWithConfig(ctx, m, shown)
	default:
		return state, waits{reason: "WaitingForNode", message: fmt.Sprintf("waits for node %s to answer", m.Name), silent: true}
	}
}

// provide writes the configuration of a node into the Secret that its Machine names, and
// then says so to create-vm.
func (f *function) provide(ctx context.Context, c *cluster, m *v1alpha1.Machine, config []byte) error {
	if err := f.checkKeys(ctx, c); err != nil {
		return err
	}
	if err := f.writeConfig(ctx, m, config); err != nil {
		return err
	}
	before := m.DeepCopy()
	sum := sha256.Sum256(config)
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationMachineConfig, hex.EncodeToString(sum[:]))
	wrote, err := f.kube.Patch(ctx, before, m)
	switch {
	case kube.NotFound(err):
		return nil
	case kube.Conflict(err), err == nil && !wrote:
		return cmp.Or(f.withdraw(ctx, before), err)
	default:
		return err
	}
}

// withdraw deletes the configuration of a node that another delivery has seen with it
// meanwhile.
func (f *function) withdraw(ctx context.Context, m *v1alpha1.Machine) error {
	now := &v1alpha1.Machine{}
	err := f.kube.Get(ctx, m.Namespace, m.Name, now)
	if kube.NotFound(err) || (err == nil && (now.UID != m.UID || !installed(now))) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.kube.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.MachineConfigSecret()}})
	if kube.NotFound(err) {
		return nil
	}
	return err
}

// machineConfigSecret is the Secret with the configuration of a node. Its Machine owns it.
func machineConfigSecret(m *v1alpha1.Machine, config []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.MachineConfigSecret(),
			Labels:          map[string]string{v1alpha1.LabelClusterName: m.Labels[v1alpha1.LabelClusterName], v1alpha1.LabelManagedBy: functionName},
			OwnerReferences: kube.Owned(m, v1alpha1.GroupVersion.String(), "Machine"),
		},
		Data: map[string][]byte{v1alpha1.MachineConfigKey: config},
	}
}

// writeConfig writes a configuration into the Secret that its Machine names. A Secret of
// somebody else, or of an earlier Machine of the name, is a fault.
func (f *function) writeConfig(ctx context.Context, m *v1alpha1.Machine, config []byte) error {
	secret := &corev1.Secret{}
	err := f.kube.Get(ctx, m.Namespace, m.MachineConfigSecret(), secret)
	if kube.NotFound(err) {
		return f.kube.Create(ctx, machineConfigSecret(m, config))
	}
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(secret, m) {
		return fault{"NameTaken", fmt.Sprintf("Secret %s was not made for Machine %s: delete it", secret.Name, m.Name)}
	}
	if bytes.Equal(secret.Data[v1alpha1.MachineConfigKey], config) {
		return nil
	}
	before := secret.DeepCopy()
	secret.Data = map[string][]byte{v1alpha1.MachineConfigKey: config}
	_, err = f.kube.Patch(ctx, before, secret)
	return err
}

// checkKeys returns an error unless the keys that this delivery has read are still those of
// the cluster, in the same phase of a rotation. A Secret that is deleted before any
// configuration is provided is replaced by other keys, and a node with the first ones would
// be a stranger to them.
func (f *function) checkKeys(ctx context.Context, c *cluster) error {
	now, err := f.readKeys(ctx, c.KubernetesCluster)
	if err == nil && now != nil && now.nextSecret == nil {
		now, err = f.readNextKeys(ctx, c.KubernetesCluster, now) // a rotation may have begun meanwhile
	}
	if err != nil {
		return err
	}
	if now == nil || !now.same(c.keys) {
		return errors.New("the keys of the cluster have been replaced")
	}
	return nil
}

// markInstalled marks the Machine of a node that has its configuration, so that create-vm
// takes the configuration away from the hypervisor and deletes its Secret.
func (f *function) markInstalled(ctx context.Context, m *v1alpha1.Machine) error {
	before := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationInstalled, "true")
	delete(m.Annotations, v1alpha1.AnnotationMachineConfig)
	if _, err := f.kube.Patch(ctx, before, m); err != nil && !kube.NotFound(err) && !kube.Conflict(err) {
		return err
	}
	return nil
}

// restartWithConfig restarts the machine of a node that has started without its
// configuration, once the hypervisor has that: Talos reads its seed at each start. It
// restarts once for each Secret, and says what to do if that has not helped. A node that is
// another machine is a fault.
func (f *function) restartWithConfig(ctx context.Context, m *v1alpha1.Machine, shown fingerprint) error {
	nc := &v1alpha1.NetworkConfiguration{}
	if err := f.kube.Get(ctx, m.Namespace, m.Name, nc); err != nil && !kube.NotFound(err) {
		return err
	}
	if err := recognise(ctx, m, macsOf(nc), shown); errors.As(err, new(fault)) {
		return err
	} else if err != nil {
		return waits{reason: "WaitingForNode", message: fmt.Sprintf("waits for node %s to answer", m.Name), silent: true}
	}
	if !m.HoldsMachineConfig() {
		return waits{reason: "WaitingForMachines", message: fmt.Sprintf("waits until the hypervisor of machine %s has its machine configuration", m.Name)}
	}
	secret := &corev1.Secret{}
	if err := f.kube.Get(ctx, m.Namespace, m.MachineConfigSecret(), secret); err != nil {
		return err
	}
	token := "machine-config-" + string(secret.UID)
	switch {
	case m.Spec.RestartToken != token:
		before := m.DeepCopy()
		m.Spec.RestartToken = token
		if _, err := f.kube.Patch(ctx, before, m); err != nil {
			return err
		}
		fallthrough
	case m.Status.RestartToken != token:
		return waits{reason: "WaitingForNode", message: fmt.Sprintf("waits for machine %s to restart with its machine configuration", m.Name)}
	default:
		return waits{reason: "WaitingForNode", silent: true, message: fmt.Sprintf(
			"waits for node %s to start with its machine configuration; if it stays in maintenance mode, look at the console of the virtual machine, or delete Machine %s", m.Name, m.Name)}
	}
}

// recognise makes sure that a node in maintenance mode is the machine that it should
// be. It returns a fault where that is another one.
func recognise(ctx context.Context, m *v1alpha1.Machine, macs []string, pinned fingerprint) error {
	id, err := identify(ctx, addressOf(m), pinned)
	if err != nil {
		return err
	}
	if !id.is(string(m.UID), macs) {
		return fault{"WrongNode", fmt.Sprintf(
			"the node at %s has %s, but Machine %s has UID %s and MAC addresses %s: two machines may have one address",
			addressOf(m), id, m.Name, m.UID, strings.Join(macs, ", "))}
	}
	return nil
}
