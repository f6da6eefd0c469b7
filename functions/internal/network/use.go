package network

import (
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Use keeps a NetworkConfiguration for a Machine.
func Use(nc *v1alpha1.NetworkConfiguration, machine string) {
	kube.AddFinalizer(nc, v1alpha1.FinalizerUsedBy+machine)
}

// Leave lets a NetworkConfiguration go as far as a Machine is concerned.
func Leave(nc *v1alpha1.NetworkConfiguration, machine string) {
	kube.RemoveFinalizer(nc, v1alpha1.FinalizerUsedBy+machine)
}

// Users are the Machines that a NetworkConfiguration is kept for. Until there is none,
// their virtual machines may have its addresses, whether it is being deleted or not.
func Users(nc *v1alpha1.NetworkConfiguration) []string {
	var machines []string
	for _, finalizer := range nc.Finalizers {
		if machine, ok := strings.CutPrefix(finalizer, v1alpha1.FinalizerUsedBy); ok {
			machines = append(machines, machine)
		}
	}
	return machines
}
