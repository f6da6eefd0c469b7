package hypervisor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// CredentialsVariable lists namespaces whose Secrets a MachineProvider may name, beside
// the namespace of the stack.
const CredentialsVariable = "CREDENTIALS_NAMESPACES"

// Credentials reads the Secrets with the credentials of MachineProviders.
type Credentials struct {
	// Home is the client for the cluster of the Secrets.
	Home *kube.Client
	// Namespaces are the namespaces that Secrets may be in, as CredentialsNamespaces returns them.
	Namespaces []string
}

// CredentialsNamespaces returns the namespaces whose Secrets a MachineProvider may name:
// the namespace of the stack, and those of CREDENTIALS_NAMESPACES with commas between.
func CredentialsNamespaces(getenv func(string) string) []string {
	namespaces := []string{kube.Namespace(getenv)}
	for name := range strings.SplitSeq(getenv(CredentialsVariable), ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(namespaces, name) {
			namespaces = append(namespaces, name)
		}
	}
	return namespaces
}

// Of returns the data of the Secret that a MachineProvider names. It returns a UserError if
// there is none, or if credentials are not read from its namespace. keys says what the Secret has to have.
func (c Credentials) Of(ctx context.Context, p *v1alpha1.MachineProvider, keys string) (map[string][]byte, error) {
	ref := p.Spec.CredentialsRef
	switch {
	case ref == nil:
		return nil, reconcile.UserError{Reason: "CredentialsMissing", Message: fmt.Sprintf("MachineProvider %s has no credentials: name a Secret with %s in spec.credentialsRef", p.Name, keys)}
	case !slices.Contains(c.Namespaces, ref.Namespace):
		return nil, reconcile.UserError{Reason: "CredentialsNotAllowed", Message: fmt.Sprintf("MachineProvider %s names Secret %s/%s, and credentials are read only from %s: create the Secret in %s and write that namespace into spec.credentialsRef.namespace, or have %s added to %s of create-vm (credentials.namespaces of the chart)",
			p.Name, ref.Namespace, ref.Name, strings.Join(c.Namespaces, ", "), strings.Join(c.readable(), " or "), ref.Namespace, CredentialsVariable)}
	}
	secret := &corev1.Secret{}
	err := c.Home.Get(ctx, ref.Namespace, ref.Name, secret)
	if kube.NotFound(err) {
		return nil, reconcile.UserError{Reason: "CredentialsMissing", Message: fmt.Sprintf("Secret %s/%s of MachineProvider %s does not exist: change spec.credentialsRef, or create it with %s. The stack checks again every minute", ref.Namespace, ref.Name, p.Name, keys)}
	}
	return secret.Data, reconcile.SecretsError(err, FunctionName)
}

// readable returns the namespaces whose Secrets create-vm certainly has the right to read. With secrets.namespaces and credentials.namespaces the
// chart grants no right in the namespace of the stack, which is the first.
func (c Credentials) readable() []string {
	if len(c.Namespaces) > 1 {
		return c.Namespaces[1:]
	}
	return c.Namespaces
}

// UnusableSecret returns the UserError of a MachineProvider with a Secret that cannot be used. why
// says what to change in the Secret. The MachineProvider must name one.
func UnusableSecret(p *v1alpha1.MachineProvider, why string) error {
	return reconcile.UserError{Reason: "CredentialsInvalid", Message: fmt.Sprintf("Secret %s/%s of MachineProvider %s: %s. The stack checks again every minute", p.Spec.CredentialsRef.Namespace, p.Spec.CredentialsRef.Name, p.Name, why)}
}
