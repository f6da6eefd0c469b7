package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/kubevirt"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/proxmox"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// backends has a line for each kind of hypervisor. docs/backends.md says what another one needs in addition
// to its line here.
var backends = map[v1alpha1.ProviderType]hypervisor.Backend{
	v1alpha1.ProviderKubeVirt: kubevirt.Backend,
	v1alpha1.ProviderProxmox:  proxmox.Backend,
}

// kinds returns the kinds that the function and its backends read and write in its cluster.
func kinds() []func(*runtime.Scheme) error {
	all := []func(*runtime.Scheme) error{v1alpha1.AddToScheme, v1alpha2.AddToScheme, kube.Kinds(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Secret{}, &corev1.Namespace{}, &corev1.ConfigMap{})}
	for _, b := range backends {
		all = append(all, b.Kinds...)
	}
	return all
}

// connectBackends returns a connector that selects the backend by the type of a
// MachineProvider. It returns a UserError for a type without a backend.
func connectBackends(backends map[v1alpha1.ProviderType]hypervisor.Backend, env hypervisor.Environment) hypervisor.Connector {
	connectors := map[v1alpha1.ProviderType]hypervisor.Connector{}
	for kind, b := range backends {
		connectors[kind] = b.Open(env)
	}
	return func(ctx context.Context, p *v1alpha1.MachineProvider) (hypervisor.Interface, error) {
		connect, ok := connectors[p.Spec.Type]
		if !ok {
			return nil, reconcile.UserError{Reason: "MachineProviderNotSupported", Message: fmt.Sprintf("MachineProvider %s is of type %s, which this installation cannot reach", p.Name, p.Spec.Type)}
		}
		return connect(ctx, p)
	}
}
