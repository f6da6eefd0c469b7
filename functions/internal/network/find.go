// Package network finds the NetworkNamespace that an object is in.
package network

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Unresolved says why there is no one network that an object is in. Reason is one
// word for a condition, Message says what to write.
type Unresolved struct{ Reason, Message string }

func (u Unresolved) Error() string { return u.Reason + ": " + u.Message }

// Reasons that a network that is made takes away.
const (
	reasonNotFound = "NetworkNamespaceNotFound"
	reasonNone     = "NoNetworkNamespace"
)

// Find returns the NetworkNamespace of a name, or where the name is empty the
// only one of the namespace. It returns Unresolved where there is none, or more
// than one to choose from.
func Find(ctx context.Context, c *kube.Client, namespace, name string) (*v1alpha2.NetworkNamespace, error) {
	if name != "" {
		nn := &v1alpha2.NetworkNamespace{}
		err := c.Get(ctx, namespace, name, nn)
		if kube.NotFound(err) {
			return nil, Unresolved{reasonNotFound, fmt.Sprintf(
				"there is no NetworkNamespace %s in namespace %s: create it, or name another in networkNamespaceName", name, namespace)}
		}
		return nn, err
	}
	list := &v1alpha2.NetworkNamespaceList{}
	if err := c.List(ctx, namespace, "", list); err != nil {
		return nil, err
	}
	return only(namespace, list.Items)
}

// Missing tells whether an object waits, by its conditions, because Find found no
// network for it.
func Missing(conditions []metav1.Condition) bool {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionFalse && (ready.Reason == reasonNotFound || ready.Reason == reasonNone)
}

func only(namespace string, items []v1alpha2.NetworkNamespace) (*v1alpha2.NetworkNamespace, error) {
	switch len(items) {
	case 0:
		return nil, Unresolved{reasonNone, fmt.Sprintf(
			"there is no NetworkNamespace in namespace %s: create one", namespace)}
	case 1:
		return &items[0], nil
	}
	names := make([]string, 0, len(items))
	for _, nn := range items {
		names = append(names, nn.Name)
	}
	slices.Sort(names)
	return nil, Unresolved{"NetworkNamespaceAmbiguous", fmt.Sprintf(
		"namespace %s has several NetworkNamespaces: write one of %s into networkNamespaceName", namespace, strings.Join(names, ", "))}
}
