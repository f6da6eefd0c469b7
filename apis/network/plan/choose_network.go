// Package plan decides, from the networks that exist, which one an object is in. Its functions have no
// client, clock or log.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha2"
)

// Unresolved says why the network of an object cannot be determined. Reason is the reason of
// a condition, and Message says what to write.
type Unresolved struct{ Reason, Message string }

func (u Unresolved) Error() string { return u.Reason + ": " + u.Message }

// Reasons that the creation of a network resolves.
const (
	ReasonNotFound = "NetworkNamespaceNotFound"
	ReasonNone     = "NoNetworkNamespace"
)

// ChooseNetwork returns the NetworkNamespace with a name, or with an empty name the only one. items are those
// of the namespace. It returns Unresolved if there is none, or more than one to choose from.
func ChooseNetwork(namespace, name string, items []v1alpha2.NetworkNamespace) (*v1alpha2.NetworkNamespace, error) {
	if name != "" {
		i := slices.IndexFunc(items, func(nn v1alpha2.NetworkNamespace) bool { return nn.Name == name })
		if i < 0 {
			return nil, Unresolved{ReasonNotFound, fmt.Sprintf(
				"there is no NetworkNamespace %s in namespace %s: create it, or use another one", name, namespace)}
		}
		return &items[i], nil
	}
	switch len(items) {
	case 0:
		return nil, Unresolved{ReasonNone, fmt.Sprintf("there is no NetworkNamespace in namespace %s: create one", namespace)}
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
