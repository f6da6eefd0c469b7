package network

import (
	"context"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// AddUser adds the finalizer by which a Machine keeps a NetworkConfiguration.
func AddUser(nc *v1alpha1.NetworkConfiguration, machine string) {
	kube.AddFinalizer(nc, v1alpha1.FinalizerUsedBy+machine)
}

// RemoveUser removes the finalizer that AddUser has added.
func RemoveUser(nc *v1alpha1.NetworkConfiguration, machine string) {
	kube.RemoveFinalizer(nc, v1alpha1.FinalizerUsedBy+machine)
}

// Users returns the Machines that keep a NetworkConfiguration. Their virtual machines may use
// its addresses, even while it is being deleted.
func Users(nc *v1alpha1.NetworkConfiguration) []string {
	var machines []string
	for _, finalizer := range nc.Finalizers {
		if machine, ok := strings.CutPrefix(finalizer, v1alpha1.FinalizerUsedBy); ok {
			machines = append(machines, machine)
		}
	}
	return machines
}

// UserOf returns the name of a Machine whose virtual machine may use an address of a
// NetworkConfiguration, or nothing. A virtual machine whose addresses are unknown may use
// any of them.
func UserOf(ctx context.Context, c *kube.Client, nc *v1alpha1.NetworkConfiguration, address string) (string, error) {
	for _, name := range Users(nc) {
		m := &v1alpha1.Machine{}
		err := c.Get(ctx, nc.Namespace, name, m)
		switch {
		case kube.NotFound(err):
			continue
		case err != nil:
			return "", err
		}
		has := m.Status.IPAddresses
		if m.Status.VMName != "" && (len(has) == 0 || slices.Contains(has, address)) {
			return name, nil
		}
	}
	return "", nil
}
