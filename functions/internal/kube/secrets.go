package kube

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// SecretsForbidden reports whether RBAC forbids what err was returned for, and that is a
// request for a Secret or a ConfigMap. The message says which request the API server
// forbids, and how the function gets its rights in the namespace. Another attempt does not
// help. It returns false for an object that a quota or a policy refuses.
func SecretsForbidden(err error, function string) (message string, ok bool) {
	var status apierrors.APIStatus
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) {
		return "", false
	}
	said := status.Status().Message
	if !strings.Contains(said, ` resource "secrets" in API group ""`) && !strings.Contains(said, ` resource "configmaps" in API group ""`) {
		return "", false
	}
	return fmt.Sprintf("%s: have the namespace added to secrets.namespaces of the chart, or bind ClusterRole vitistack-%s-secrets to ServiceAccount %s in it",
		said, function, function), true
}
