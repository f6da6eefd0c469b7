// Package network finds the NetworkNamespace that an object is in, and the NetworkPools of its namespace.
package network

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Unresolved says why the network of an object cannot be determined.
type Unresolved = plan.Unresolved

// Find returns the NetworkNamespace with a name, or with an empty name the only one of the
// namespace. It returns Unresolved if there is none, or more than one to choose from.
func Find(ctx context.Context, c *kube.Client, namespace, name string) (*v1alpha2.NetworkNamespace, error) {
	if name != "" {
		nn := &v1alpha2.NetworkNamespace{}
		err := c.Get(ctx, namespace, name, nn)
		if kube.NotFound(err) {
			return plan.ChooseNetwork(namespace, name, nil)
		}
		return nn, err
	}
	list := &v1alpha2.NetworkNamespaceList{}
	if err := c.List(ctx, namespace, "", list); err != nil {
		return nil, err
	}
	return plan.ChooseNetwork(namespace, "", list.Items)
}

// FindOnly returns the name of the only NetworkNamespace of a namespace. It returns Unresolved if there is none, or more than one.
func FindOnly(ctx context.Context, c *kube.Client, namespace string) (name string, err error) {
	list := &v1alpha2.NetworkNamespaceList{}
	err = c.ListToChoose(ctx, namespace, list, func() error {
		nn, err := plan.ChooseNetwork(namespace, "", list.Items)
		if err == nil {
			name = nn.Name
		}
		return err
	})
	return name, err
}

// NameFor returns the name of the NetworkNamespace that a NetworkConfiguration is in. One
// that names none, and has interfaces in one already, stays there, however many others
// are created later. It is empty where the only one of the namespace is meant.
func NameFor(nc *v1alpha1.NetworkConfiguration) string {
	if nc.Spec.NetworkNamespaceName == "" && len(nc.Status.NetworkInterfaces) > 0 {
		return nc.Status.NetworkNamespaceName
	}
	return nc.Spec.NetworkNamespaceName
}

// IsProvisioned reports whether a network has its segment. A network that is being deleted
// keeps its segment for its users.
func IsProvisioned(nn *v1alpha2.NetworkNamespace) bool {
	s := nn.Status
	return s.ProvisioningPhase == v1alpha2.ProvisioningReady ||
		s.ProvisioningPhase == v1alpha2.ProvisioningDeleting && (s.IPv4Prefix != "" || s.IPv6Prefix != "")
}

// IsMissing reports whether an object, by its conditions, waits because Find found no network
// for it.
func IsMissing(conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionFalse && (ready.Reason == plan.ReasonNotFound || ready.Reason == plan.ReasonNone)
}
