package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// writer makes changes of the database in batches. A change waits for the next batch, or has it written at once if it is urgent.
type writer struct {
	*database
	batchSize     int
	flushInterval time.Duration
	arrived       chan struct{}
	// delivers receives a value after a change that adds to the outbox.
	delivers chan<- struct{}

	mu      sync.Mutex
	closed  bool
	pending []*request
}

// maxPending bounds the pending records. Further events wait at the Broker.
const maxPending = 10_000

// request is a pending change of the database.
type request struct {
	// apply makes the change. If the transaction fails, it is called again in another one.
	apply  func(ctx context.Context, tx *sql.Tx) error
	urgent bool
	// delivers reports that the change adds to the outbox.
	delivers bool
	err      error
	done     chan struct{}
}

// submit waits until a change is in the database.
func (w *writer) submit(ctx context.Context, req *request) error {
	req.done = make(chan struct{})
	w.mu.Lock()
	if w.closed || len(w.pending) >= maxPending {
		w.mu.Unlock()
		return fmt.Errorf("write to the history: %w", ErrNotReady)
	}
	w.pending = append(w.pending, req)
	wake := req.urgent || len(w.pending) >= w.batchSize
	w.mu.Unlock()
	if wake {
		select {
		case w.arrived <- struct{}{}:
		default:
		}
	}
	select {
	case <-req.done:
		return req.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run makes the pending changes in batches, until ctx ends and none is pending. While it writes one batch, the next one collects.
func (w *writer) run(ctx context.Context) {
	ticker := time.NewTicker(w.flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			w.flush()
			w.shut(ErrNotReady)
			return
		case <-ticker.C:
		case <-w.arrived:
		}
		w.flush()
	}
}

// writeTimeout bounds the write of one batch.
const writeTimeout = 20 * time.Second

// flush makes all pending changes.
func (w *writer) flush() {
	for {
		w.mu.Lock()
		n := min(len(w.pending), w.batchSize)
		batch := w.pending[:n:n]
		w.pending = w.pending[n:]
		if len(w.pending) == 0 {
			w.pending = nil
		}
		w.mu.Unlock()
		if n == 0 {
			return
		}
		// What has been taken is written to its end, even while the process ends.
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		w.writeBatch(ctx, batch)
		cancel()
	}
}

// shut refuses all pending and later changes.
func (w *writer) shut(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, r := range w.pending {
		r.err = err
		close(r.done)
	}
	w.pending = nil
}

// writeBatch makes a batch of changes in one transaction. If that fails, it makes each change in a transaction of its own, so that
// one failing change does not block the others.
func (w *writer) writeBatch(ctx context.Context, batch []*request) {
	err := w.transact(ctx, batch)
	if err != nil && len(batch) > 1 && w.sql.PingContext(ctx) == nil {
		for _, r := range batch {
			if err := w.transact(ctx, []*request{r}); err != nil {
				r.err = err
			}
		}
	} else if err != nil {
		for _, r := range batch {
			r.err = err
		}
	}
	delivers := false
	for _, r := range batch {
		delivers = delivers || (r.err == nil && r.delivers)
		if r.err != nil && !errors.Is(r.err, ErrConflict) {
			w.writesFail.Store(true)
		}
		close(r.done)
	}
	if delivers {
		select {
		case w.delivers <- struct{}{}:
		default:
		}
	}
}

// transact makes changes in one transaction. A conflict fails only its own change.
func (w *writer) transact(ctx context.Context, batch []*request) error {
	tx, err := w.sql.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin to write: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, r := range batch {
		if r.err = r.apply(ctx, tx); r.err != nil && !errors.Is(r.err, ErrConflict) {
			return r.err
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("write to the history: %w", err)
	}
	return nil
}
