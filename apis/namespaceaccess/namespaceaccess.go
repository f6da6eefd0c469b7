// Package namespaceaccess decides which namespaces may use an object that the platform team shares.
package namespaceaccess

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// InvalidSelector is the error of a label selector that cannot be read.
type InvalidSelector struct{ Err error }

func (e InvalidSelector) Error() string {
	return fmt.Sprintf("spec.allowedNamespaces.selector: %s", e.Err)
}

// Includes reports whether allowed includes a namespace: absent includes all. It calls
// namespaceLabels only where the name alone does not decide. It returns InvalidSelector for
// a selector that cannot be read, which includes no namespace.
func Includes(allowed *v1alpha1.AllowedNamespaces, namespace string, namespaceLabels func() (map[string]string, error)) (bool, error) {
	if allowed == nil || slices.Contains(allowed.List, namespace) {
		return true, nil
	}
	if allowed.Selector == nil {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(allowed.Selector)
	if err != nil {
		return false, InvalidSelector{err}
	}
	set, err := namespaceLabels()
	return err == nil && selector.Matches(labels.Set(set)), err
}
