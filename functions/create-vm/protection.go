package main

import (
	"fmt"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// checkProtection returns a UserError for a Machine whose spec forbids its deletion. The admission policy in
// knative/admission.yaml refuses the deletion before; this holds one that came earlier than the protection.
func checkProtection(m *v1alpha1.Machine) error {
	if !m.Spec.Protected {
		return nil
	}
	return reconcile.UserError{Reason: "Protected", Message: fmt.Sprintf(
		"Machine %s/%s is protected: run %s, and its deletion continues", m.Namespace, m.Name, m.UnprotectCommand())}
}
