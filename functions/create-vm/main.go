// Create-vm makes the virtual machine of each Machine on the hypervisor of its
// MachineProvider: layer 3 of the stack.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/networkpool"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func main() {
	events.Run(functionName, func() (events.Handler, error) {
		environment(events.NewLogger(os.Stderr, os.Getenv("LOG_LEVEL")), os.Getenv)
		client, err := kube.Connect(functionName, kinds...)
		if err != nil {
			return nil, err
		}
		f := &function{kube: client, connect: connect(credentials{client, credentialsNamespaces(os.Getenv)}, nil), local: local(client), images: allowedImages(os.Getenv), optionalPools: networkpool.Optional(os.Getenv), now: time.Now, patience: 5 * time.Second}
		return f.handle, nil
	})
}

// transport wraps the connections to a server; nil changes nothing.
type transport func(http.RoundTripper) http.RoundTripper

// connect returns a function that returns the hypervisor of a MachineProvider. It reads the
// credentials for each delivery, so that they can change at any time. wrap applies to the
// connections that do not go through the client of read.
func connect(read credentials, wrap transport) func(context.Context, *v1alpha1.MachineProvider) (hypervisor, error) {
	open, claims := &connections{}, kube.Namespace(os.Getenv)
	return func(ctx context.Context, p *v1alpha1.MachineProvider) (hypervisor, error) {
		switch p.Spec.Type {
		case v1alpha1.ProviderKubeVirt:
			return connectKubeVirt(ctx, read, p, wrap)
		case v1alpha1.ProviderProxmox:
			return connectProxmox(ctx, read, p, claims, open, wrap)
		default:
			return nil, reconcile.UserError{Reason: "MachineProviderNotSupported", Message: fmt.Sprintf("MachineProvider %s is of type %s, which this installation cannot reach", p.Name, p.Spec.Type)}
		}
	}
}

// kinds are the kinds that the function reads and writes.
var kinds = []func(*runtime.Scheme) error{
	v1alpha1.AddToScheme, v1alpha2.AddToScheme,
	kube.Kinds(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Secret{}, &corev1.Namespace{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{}, &corev1.NodeList{}),
	kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{}),
	kube.Kinds(storagev1.SchemeGroupVersion, &storagev1.StorageClassList{}),
	kube.Kinds(kubevirtv1.GroupVersion, &kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineInstance{}, &kubevirtv1.KubeVirtList{}),
	kube.Kinds(attachmentVersion, &NetworkAttachmentDefinition{}),
}
