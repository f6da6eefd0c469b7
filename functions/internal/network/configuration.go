package network

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// IsConfigured reports whether a NetworkConfiguration has what its present spec asks for.
func IsConfigured(nc *v1alpha1.NetworkConfiguration) bool {
	return meta.IsStatusConditionTrue(nc.Status.Conditions, v1alpha1.ConditionReady) && nc.Status.ObservedGeneration == nc.Generation
}
