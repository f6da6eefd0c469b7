package kube

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// LabelsOf returns a function that reads the labels of a namespace at its first call.
func (c *Client) LabelsOf(ctx context.Context, namespace string) func() (map[string]string, error) {
	return sync.OnceValues(func() (map[string]string, error) {
		ns := &corev1.Namespace{}
		err := c.Get(ctx, "", namespace, ns)
		return ns.Labels, err
	})
}
