// Package coalesce makes identical concurrent calls once.
package coalesce

import (
	"context"
	"sync"
)

// Calls makes identical calls once for all callers that arrived before the call started. It
// has no cache: a caller that arrives during a call waits for the next one, unlike with
// golang.org/x/sync/singleflight. Its zero value is ready for use.
type Calls[T any] struct {
	mu      sync.Mutex
	current map[string]*call[T]
	next    map[string]*call[T]
}

type call[T any] struct {
	done   chan struct{}
	result T
	// broken is set where the caller was ended, which says nothing to others.
	broken bool
}

// Do returns the result of f, called here or by another caller of Do with the same
// key, and always after Do was called. Callers share the result and must not change it.
func (c *Calls[T]) Do(ctx context.Context, key string, f func(context.Context) T) T {
	c.mu.Lock()
	if c.current == nil {
		c.current, c.next = map[string]*call[T]{}, map[string]*call[T]{}
	}
	current, next := c.current[key], c.next[key]
	mine := &call[T]{done: make(chan struct{})}
	switch {
	case current == nil:
		c.current[key] = mine
	case next == nil:
		c.next[key] = mine
	}
	c.mu.Unlock()
	if current == nil {
		return c.lead(ctx, key, mine, f)
	}
	if next == nil {
		// At its end, the current call makes this the current one.
		<-current.done
		return c.lead(ctx, key, mine, f)
	}
	select {
	case <-next.done:
	case <-ctx.Done():
		return f(ctx)
	}
	if next.broken {
		return f(ctx)
	}
	return next.result
}

// lead calls f for all who wait for it.
func (c *Calls[T]) lead(ctx context.Context, key string, mine *call[T], f func(context.Context) T) T {
	mine.broken = true
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.current, key)
		if next := c.next[key]; next != nil {
			c.current[key] = next
			delete(c.next, key)
		}
		close(mine.done)
	}()
	mine.result = f(ctx)
	mine.broken = ctx.Err() != nil
	return mine.result
}
