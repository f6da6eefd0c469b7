package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// view is a list that several callers share, or the error of its request.
type view struct {
	list ObjectList
	err  error
}

// ListShared is ListPage for callers that do not change the list. Concurrent identical calls share
// one list, so that a hundred callers need as much memory as one.
func ListShared[T any, L interface {
	*T
	ObjectList
}](ctx context.Context, c *Client, namespace string, options metav1.ListOptions) (L, error) {
	list := L(new(T))
	request, ref, err := c.listing(namespace, options, list)
	if err != nil {
		return list, err
	}
	seen := c.views.Do(ctx, request.URL().String(), func(ctx context.Context) view {
		return view{list, decode(request.Do(ctx), list)}
	})
	return seen.list.(L), wrap(seen.err, "list", ref, namespace, "")
}
