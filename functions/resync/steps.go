package main

import (
	"context"

	"github.com/vitistack/stack/functions/internal/kube"
)

// step is one list that a round reads.
type step struct {
	name string
	// run reads the list from the place where the round stopped. complete is whether it has
	// read the last page, otherwise the slice is over.
	run func(ctx context.Context, p *round) (complete bool, err error)
}

// steps are the kinds, and then the Leases of what they hold.
func steps() []step {
	var all []step
	for _, k := range kinds {
		all = append(all, step{k.name, func(ctx context.Context, p *round) (bool, error) {
			if k.name == ipAllocation {
				return p.readAllocations(ctx, k)
			}
			return forEach(ctx, p, k.resource, kube.Page{Limit: pageSize}, func(o object) error { return p.sendIfNeeded(ctx, k, o) })
		}})
	}
	return append(all, leaseSteps...)
}

// stepIndex returns the index of a step, or -1. The empty name is the first step.
func stepIndex(name string) int {
	for i, s := range steps() {
		if s.name == name || name == "" {
			return i
		}
	}
	return -1
}
