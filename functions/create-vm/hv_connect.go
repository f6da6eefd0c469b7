package main

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// functionName is the name of the function in labels, logs, user agents and messages.
const functionName = "create-vm"

// backend is one kind of hypervisor. Its package exports one.
type backend struct {
	// kinds register the types that the backend reads and writes in the cluster of the
	// function, beside those of the stack.
	kinds []func(*runtime.Scheme) error
	// open prepares what lives as long as the process, such as idle connections, and returns
	// the function that connects to one hypervisor. It sends no request.
	open func(environment) connector
}

// connector returns the hypervisor of a MachineProvider. It is called in each delivery, and
// reads the credentials each time, so that they can change at any time. It returns a UserError
// if the spec or the credentials cannot be used.
type connector func(ctx context.Context, p *v1alpha1.MachineProvider) (hypervisor, error)

// environment is what a process gives to its backends.
type environment struct {
	// home is the client for the cluster of the function.
	home *kube.Client
	// credentials reads the Secrets of MachineProviders.
	credentials credentials
	// namespace is the stack's. Claims of IDs are Leases in it.
	namespace string
	// wrap wraps the connections that do not use the client home; nil changes nothing.
	wrap func(http.RoundTripper) http.RoundTripper
}

// defaultsOf returns the defaults of a MachineProvider for its machines.
func defaultsOf(p *v1alpha1.MachineProvider) v1alpha1.ProviderDefaults {
	if p.Spec.Defaults == nil {
		return v1alpha1.ProviderDefaults{}
	}
	return *p.Spec.Defaults
}
