package v1alpha2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StatusConditions returns the conditions of the status, which the caller may change.
func (n *NetworkNamespace) StatusConditions() *[]metav1.Condition { return &n.Status.Conditions }

// StatusConditions returns the conditions of the status, which the caller may change.
func (a *IPAllocation) StatusConditions() *[]metav1.Condition { return &a.Status.Conditions }
