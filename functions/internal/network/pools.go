package network

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Pools reads the NetworkPools that a namespace may use. optional is whether a namespace without any is allowed
// everything. Concurrent calls share one request.
func Pools(ctx context.Context, c *kube.Client, namespace string, optional bool) (plan.Pools, error) {
	list, err := kube.ListShared[v1alpha1.NetworkPoolList](ctx, c, "", metav1.ListOptions{})
	if err != nil {
		return plan.Pools{}, err
	}
	return plan.SelectPools(list.Items, namespace, c.LabelsOf(ctx, namespace), optional)
}
