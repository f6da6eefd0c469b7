package v1alpha2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is vitistack.io/v1alpha2.
var GroupVersion = schema.GroupVersion{Group: "vitistack.io", Version: "v1alpha2"}

// AddToScheme registers the kinds of this package.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&NetworkNamespace{}, &NetworkNamespaceList{},
		&IPAllocation{}, &IPAllocationList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
