package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

const reasonMachineProtected = "MachineProtected"

// protectionPolicy is the ValidatingAdmissionPolicy in knative/admission.yaml that refuses to
// delete protected objects. The API server names it in the refusal.
const protectionPolicy = "vitistack-protected"

// protectedError returns the UserError for a Machine that has to be removed and is protected.
func protectedError(m *v1alpha1.Machine) error {
	return reconcile.UserError{Reason: reasonMachineProtected, Message: fmt.Sprintf(
		"cannot remove Machine %s/%s, because it is protected: run %s, and its removal continues", m.Namespace, m.Name, m.UnprotectCommand())}
}

// checkProtection returns a UserError for a Machine that is protected now. A delivery that polls
// has read its Machines some time ago, and a drain cannot be undone.
func (s *machineStore) checkProtection(ctx context.Context, m *v1alpha1.Machine) error {
	current := &v1alpha1.Machine{}
	if err := s.kube.Get(ctx, m.Namespace, m.Name, current); err != nil {
		if kube.NotFound(err) {
			return nil
		}
		return err
	}
	if current.UID == m.UID && current.Spec.Protected {
		return protectedError(current)
	}
	return nil
}

// isProtectedError reports whether err is the UserError for a protected Machine.
func isProtectedError(err error) bool {
	problem, isUserError := reconcile.AsUserError(err)
	return isUserError && problem.Reason == reasonMachineProtected
}

// refusedDeletion returns a UserError for a deletion that the policy rejects, because the Machine
// has become protected since it was read. Other errors, such as missing rights, are returned as
// they are.
func refusedDeletion(err error) error {
	if message, refused := kube.RejectionMessage(err); refused && strings.Contains(message, protectionPolicy) {
		return reconcile.UserError{Reason: reasonMachineProtected, Message: message}
	}
	return err
}
