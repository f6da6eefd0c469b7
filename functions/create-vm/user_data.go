package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// readUserData reads the Secrets with the first configuration of the guest. A guest that has started has read its own, so
// a UserError about it is returned in want, for the hypervisor that has to create the virtual machine again.
func (f *function) readUserData(ctx context.Context, m *v1alpha1.Machine, want *hypervisor.Desired) (err error) {
	if c := m.Spec.CloudInit; c != nil {
		want.UserData, want.NetworkData = c.UserData, c.NetworkData
	}
	if want.NetworkData == "" {
		if want.NetworkData, err = networkData(want.NICs); err != nil {
			return err
		}
	}
	if m.MachineConfigSecret() != "" {
		return reconcile.SecretsError(f.addMachineConfig(ctx, m, want), hypervisor.FunctionName)
	}
	if m.Spec.CloudInit == nil || m.Spec.CloudInit.SecretRef == nil {
		return nil
	}
	err = f.readUserDataSecret(ctx, m, want)
	if _, isUserError := reconcile.AsUserError(err); isUserError && m.Status.VMName != "" {
		want.UserDataError, err = err, nil
	}
	return err
}

// readUserDataSecret reads the Secret that the user has named for the guest.
func (f *function) readUserDataSecret(ctx context.Context, m *v1alpha1.Machine, want *hypervisor.Desired) error {
	ref, secret := m.Spec.CloudInit.SecretRef, &corev1.Secret{}
	orChange := func(field string) string {
		if m.Status.VMName != "" {
			return "" // the API server refuses that
		}
		return ", or change " + field
	}
	err := f.kube.Get(ctx, m.Namespace, ref.Name, secret)
	if kube.NotFound(err) {
		return reconcile.UserError{Reason: "CloudInitSecretNotFound", Message: fmt.Sprintf("Secret %s does not exist: create it with the user data under the key %s and the label %s=true%s. The stack checks again every minute",
			ref.Name, ref.Key, v1alpha1.LabelCloudInit, orChange("spec.cloudInit.secretRef"))}
	}
	if err != nil {
		return reconcile.SecretsError(err, hypervisor.FunctionName)
	}
	if m.Status.VMName == "" { // afterwards the guest has it
		if err := checkGuestSecret(secret); err != nil {
			return err
		}
	}
	data, ok := secret.Data[ref.Key]
	if !ok {
		return reconcile.UserError{Reason: "CloudInitSecretNotFound", Message: fmt.Sprintf("Secret %s has no key %s: write the user data there%s. The stack checks again every minute",
			ref.Name, ref.Key, orChange("spec.cloudInit.secretRef.key"))}
	}
	want.UserData, want.SecretUserData = string(data), true
	return nil
}

// checkGuestSecret returns a UserError for a Secret that does not opt in, because a user who
// may create a Machine could read any Secret of the namespace in the guest.
func checkGuestSecret(secret *corev1.Secret) error {
	owned := slices.ContainsFunc(secret.OwnerReferences, func(r metav1.OwnerReference) bool {
		return strings.HasPrefix(r.APIVersion, v1alpha1.GroupVersion.Group+"/")
	})
	switch {
	case owned || secret.Labels[v1alpha1.LabelManagedBy] != "":
		return reconcile.UserError{Reason: "CloudInitSecretNotAllowed", Message: fmt.Sprintf("Secret %s is the stack's own: name another in spec.cloudInit.secretRef", secret.Name)}
	case secret.Labels[v1alpha1.LabelCloudInit] != "true":
		return reconcile.UserError{Reason: "CloudInitSecretNotAllowed", Message: fmt.Sprintf("Secret %s is not marked as cloud-init: kubectl label secret %s --namespace %s %s=true, or name another in spec.cloudInit.secretRef",
			secret.Name, secret.Name, secret.Namespace, v1alpha1.LabelCloudInit)}
	default:
		return nil
	}
}
