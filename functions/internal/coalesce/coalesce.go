// Package coalesce makes identical concurrent calls once: reads of the API server, counts, and reconciles that a later event
// supersedes. events.Serialize does the same for deliveries, and also queues those about one object that require different things. A
// function needs coalesce for deliveries only if it has to end a call early: it then excludes the kind by
// events.WithConcurrent, as bootstrap-talos does for KubernetesClusters.
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
	// superseded is closed when the call shall end early.
	superseded chan struct{}
	supersede  func()
	// canceled is true if the context of the caller ended before the call, whose result is then not shared.
	canceled bool
}

// Do returns the result of f, called here or by another caller of Do with the same
// key, and always after Do was called. Callers share the result and must not change it.
func (c *Calls[T]) Do(ctx context.Context, key string, f func(context.Context) T) T {
	c.mu.Lock()
	if c.current == nil {
		c.current, c.next = map[string]*call[T]{}, map[string]*call[T]{}
	}
	current, next := c.current[key], c.next[key]
	mine := &call[T]{done: make(chan struct{}), superseded: make(chan struct{})}
	mine.supersede = sync.OnceFunc(func() { close(mine.superseded) })
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
	if next.canceled {
		return f(ctx)
	}
	return next.result
}

// lead calls f for all who wait for it.
func (c *Calls[T]) lead(ctx context.Context, key string, mine *call[T], f func(context.Context) T) T {
	mine.canceled = true
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
	mine.result = f(context.WithValue(ctx, supersededKey{}, mine.superseded))
	mine.canceled = ctx.Err() != nil
	return mine.result
}

// Supersede has the present call of a key end early, if there is one and it looks at Superseded. The
// caller then calls Do, which looks again.
func (c *Calls[T]) Supersede(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if current := c.current[key]; current != nil {
		current.supersede()
	}
}

type supersededKey struct{}

// Superseded returns a channel that is closed when the call that ctx belongs to shall end early,
// because another caller looks again. Outside of a call it returns nil, which blocks forever.
func Superseded(ctx context.Context) <-chan struct{} {
	superseded, _ := ctx.Value(supersededKey{}).(chan struct{})
	return superseded
}

// IsSuperseded reports whether the channel of Superseded is closed.
func IsSuperseded(ctx context.Context) bool {
	select {
	case <-Superseded(ctx):
		return true
	default:
		return false
	}
}
