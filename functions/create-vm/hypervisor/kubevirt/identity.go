package kubevirt

import (
	"context"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/functions/internal/kube"
)

// Endpoint implements hypervisor.Identifier.
func (k *Hypervisor) Endpoint() string { return k.endpoint }

// Identity implements hypervisor.Identifier. The namespace kube-system exists as long as its cluster.
func (k *Hypervisor) Identity(ctx context.Context) (string, error) {
	ns := &corev1.Namespace{}
	err := k.guests.Get(ctx, "", metav1.NamespaceSystem, ns)
	if kube.NotFound(err) || apierrors.IsForbidden(err) {
		return "", nil
	}
	return string(ns.UID), k.toUserError(err)
}

// withoutCredentials returns a server without user, query and fragment.
func withoutCredentials(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
