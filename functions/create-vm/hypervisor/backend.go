package hypervisor

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// FunctionName is the name of the function in labels, logs, user agents and messages.
const FunctionName = "create-vm"

// Backend is one kind of hypervisor. Its package exports one.
type Backend struct {
	// Kinds register the types that the backend reads and writes in the cluster of the
	// function, beside those of the stack.
	Kinds []func(*runtime.Scheme) error
	// Open prepares what lives as long as the process, such as idle connections, and returns
	// the function that connects to one hypervisor. It sends no request.
	Open func(Environment) Connector
}

// Connector returns the hypervisor of a MachineProvider. It is called in each delivery, and
// reads the credentials each time, so that they can change at any time. It returns a UserError
// if the spec or the credentials cannot be used.
type Connector func(ctx context.Context, p *v1alpha1.MachineProvider) (Interface, error)

// Environment is what a process gives to its backends.
type Environment struct {
	// Home is the client for the cluster of the function.
	Home *kube.Client
	// Credentials reads the Secrets of MachineProviders.
	Credentials Credentials
	// Namespace is the stack's. Claims of IDs are Leases in it.
	Namespace string
	// Wrap wraps the connections that do not use the client home; nil changes nothing.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// DefaultsOf returns the defaults of a MachineProvider for its machines.
func DefaultsOf(p *v1alpha1.MachineProvider) v1alpha1.ProviderDefaults {
	if p.Spec.Defaults == nil {
		return v1alpha1.ProviderDefaults{}
	}
	return *p.Spec.Defaults
}
