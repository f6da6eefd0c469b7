package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/namespaceaccess"
	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// ChooseProvider returns the MachineProvider of a machine for which nothing has been created: the one
// that ref names, or the default among the ones that its namespace may use. providers are all that exist,
// and namespaceLabels is called only where labels decide. It returns a usererror.Error if there is none
// to choose, and any error of namespaceLabels.
func ChooseProvider(ref *v1alpha1.ProviderReference, namespace string, providers []v1alpha1.MachineProvider, namespaceLabels func() (map[string]string, error)) (*v1alpha1.MachineProvider, error) {
	if ref == nil || ref.Name == "" {
		return defaultProvider(namespace, slices.DeleteFunc(slices.Clone(providers), isDeleting), namespaceLabels)
	}
	i := slices.IndexFunc(providers, func(p v1alpha1.MachineProvider) bool { return p.Name == ref.Name })
	switch {
	case i < 0:
		return nil, usererror.Error{Reason: "MachineProviderNotFound", Message: fmt.Sprintf("MachineProvider %s does not exist: create it, or name another in spec.providerRef", ref.Name)}
	case isDeleting(providers[i]):
		return nil, usererror.Error{Reason: "MachineProviderDeleting", Message: fmt.Sprintf("MachineProvider %s is being deleted: name another in spec.providerRef", ref.Name)}
	}
	return &providers[i], checkAllowed(&providers[i], namespace, namespaceLabels)
}

func isDeleting(p v1alpha1.MachineProvider) bool { return p.DeletionTimestamp != nil }

// checkAllowed returns a usererror.Error unless the Machines of a namespace may use a MachineProvider.
func checkAllowed(p *v1alpha1.MachineProvider, namespace string, namespaceLabels func() (map[string]string, error)) error {
	included, err := namespaceaccess.Includes(p.Spec.AllowedNamespaces, namespace, namespaceLabels)
	if errors.As(err, new(namespaceaccess.InvalidSelector)) {
		return usererror.Error{Reason: "MachineProviderNotAllowed", Message: fmt.Sprintf("MachineProvider %s: %s", p.Name, err)}
	}
	if included || err != nil {
		return err
	}
	return usererror.Error{Reason: "MachineProviderNotAllowed", Message: fmt.Sprintf("MachineProvider %s is not for namespace %s: name another in spec.providerRef, or have the namespace added to spec.allowedNamespaces of the MachineProvider", p.Name, namespace)}
}

// defaultProvider returns the default among the MachineProviders that a namespace may use.
func defaultProvider(namespace string, items []v1alpha1.MachineProvider, namespaceLabels func() (map[string]string, error)) (*v1alpha1.MachineProvider, error) {
	var usable []v1alpha1.MachineProvider
	var refused error
	for i := range items {
		switch err := checkAllowed(&items[i], namespace, namespaceLabels); {
		case err == nil:
			usable = append(usable, items[i])
		case errors.As(err, new(usererror.Error)):
			refused = cmp.Or(refused, err)
		default:
			return nil, err
		}
	}
	if len(usable) == 0 && refused != nil {
		return nil, refused
	}
	return chooseDefault(usable)
}

// chooseDefault returns the MachineProvider that is marked as default, or the only one.
func chooseDefault(items []v1alpha1.MachineProvider) (*v1alpha1.MachineProvider, error) {
	var marked []int
	var names []string
	for i, p := range items {
		names = append(names, p.Name)
		if p.Spec.Default {
			marked = append(marked, i)
		}
	}
	slices.Sort(names)
	switch {
	case len(items) == 0:
		return nil, usererror.Error{Reason: "NoMachineProvider", Message: "there is no MachineProvider: create one"}
	case len(items) == 1:
		return &items[0], nil
	case len(marked) == 1:
		return &items[marked[0]], nil
	case len(marked) > 1:
		return nil, usererror.Error{Reason: "MachineProviderAmbiguous", Message: "several MachineProviders are marked default: unmark all but one, or name one in spec.providerRef"}
	default:
		return nil, usererror.Error{Reason: "MachineProviderAmbiguous", Message: "no MachineProvider is marked default: name one of " + strings.Join(names, ", ") + " in spec.providerRef"}
	}
}
