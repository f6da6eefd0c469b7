package kubevirt

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// nameTakenError returns the UserError for a virtual machine of another user with the name of a machine.
func nameTakenError(vm *kubevirtv1.VirtualMachine) error {
	return reconcile.UserError{Reason: "VirtualMachineNameTaken", Message: fmt.Sprintf(
		"VirtualMachine %s was not created for this machine: delete it, or give the machine another name", vm.Name)}
}

// secretError is reconcile.SecretsError for this cluster. Rights in another cluster come with
// its kubeconfig.
func (k *Hypervisor) secretError(err error) error {
	if k.local {
		return reconcile.SecretsError(err, hypervisor.FunctionName)
	}
	return err
}

// toUserError returns a UserError for what the cluster of the virtual machines refuses, and
// any other error as it is.
func (k *Hypervisor) toUserError(err error) error {
	if apierrors.IsUnauthorized(err) && !k.local {
		return reconcile.UserError{Reason: "CredentialsInvalid", Message: fmt.Sprintf("the cluster of MachineProvider %s does not accept its credentials: renew the kubeconfig in their Secret", k.provider)}
	}
	if err = k.secretError(err); errors.As(err, new(reconcile.UserError)) {
		return err
	}
	if message, ok := kube.RejectionMessage(err); ok {
		return reconcile.UserError{Reason: "KubeVirtApiError", Message: message}
	}
	if kube.NotFound(err) {
		return reconcile.UserError{Reason: "KubeVirtApiError", Message: "KubeVirt, its network attachments or its data importer are not installed in the cluster: " + err.Error()}
	}
	return err
}
