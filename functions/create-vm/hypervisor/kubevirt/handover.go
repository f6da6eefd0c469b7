package kubevirt

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// RemoveMachineConfig implements hypervisor.Observer.
func (k *Hypervisor) RemoveMachineConfig(ctx context.Context, m *v1alpha1.Machine) error {
	return k.handOverMachineConfig(ctx, m, hypervisor.Desired{UserData: hypervisor.EmptyUserData, Handover: hypervisor.HandoverRemove})
}

// handOverMachineConfig gives or takes the machine configuration of a node: in the Secret of its
// first configuration, which KubeVirt reads at each start of an instance. It takes the configuration in one request, on the condition that
// the Secret is the machine's. If the Machine has been written since it was read, it gives none and returns an error for which kube.Conflict
// is true: the node may have its configuration, or another one is for it.
func (k *Hypervisor) handOverMachineConfig(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: kube.Name(m.Name, "cloudinit")}}
	switch want.Handover {
	case hypervisor.HandoverNone:
		return nil
	case hypervisor.HandoverRemove:
		err := k.guests.PatchJSON(ctx, secret,
			kube.Test(m.UID, "metadata", "annotations", v1alpha1.AnnotationUID), kube.Set([]byte(want.UserData), "data", "userdata"))
		if !kube.Inapplicable(err) {
			return err
		}
	case hypervisor.HandoverProvide:
	}
	err := k.guests.Get(ctx, m.Namespace, secret.Name, secret)
	if err != nil && !kube.NotFound(err) {
		return err
	}
	if err != nil || !isMadeFor(secret, m) {
		if want.Handover == hypervisor.HandoverRemove {
			return nil
		}
		return reconcile.UserError{Reason: "CloudInitSecretNotFound", Message: fmt.Sprintf("VirtualMachine %s has no Secret for a machine configuration: delete Machine %s, and its cluster makes another", m.Name, m.Name)}
	}
	if err := k.home.CheckUnchanged(ctx, m); err != nil { // after the Secret was read: Patch notices a later write
		return err
	}
	before := secret.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data["userdata"] = []byte(want.UserData)
	_, err = k.guests.Patch(ctx, before, secret)
	return err
}
