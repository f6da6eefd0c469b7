package main

import (
	"context"

	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
)

// evictPods evicts the pods of a node. It returns whether none is left to evict, and otherwise what the
// drain waits for.
func evictPods(ctx context.Context, w *workload.Client, node string) (isDrained bool, message string) {
	d, err := w.Drain(ctx, node)
	if err != nil {
		return false, err.Error()
	}
	return d.IsDone(), d.WaitsFor()
}
