package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Write records something and waits until it is in the database.
func (s *Store) Write(ctx context.Context, r Record) (Written, error) {
	return s.record(ctx, r, true)
}

// WriteLater is Write for what nobody waits for: it may take as long as the flush
// interval, so that many are written at once.
func (s *Store) WriteLater(ctx context.Context, r Record) (Written, error) {
	return s.record(ctx, r, false)
}

// mostPending bounds what waits to be written. What is beyond waits at the broker.
const mostPending = 10_000

func (s *Store) record(ctx context.Context, r Record, urgent bool) (Written, error) {
	if !s.ready.Load() {
		return Written{}, s.whyNotReady()
	}
	var written Written
	err := s.submit(ctx, &request{urgent: urgent, delivers: len(r.Deliveries) > 0, apply: func(ctx context.Context, tx *sql.Tx) (err error) {
		written, err = s.apply(ctx, tx, &r)
		return err
	}})
	if err != nil {
		return Written{}, err
	}
	return written, nil
}

// request is a change of the database that waits to be made, together with others.
type request struct {
	// apply makes the change. Where the transaction fails, it is called again in
	// another one.
	apply  func(ctx context.Context, tx *sql.Tx) error
	urgent bool
	// delivers tells that the change adds to the outbox.
	delivers bool
	err      error
	done     chan struct{}
}

// submit waits until a change is in the database.
func (s *Store) submit(ctx context.Context, req *request) error {
	req.done = make(chan struct{})
	s.mu.Lock()
	if s.closed || len(s.pending) >= mostPending {
		s.mu.Unlock()
		return fmt.Errorf("write to the history: %w", ErrNotReady)
	}
	s.pending = append(s.pending, req)
	wake := req.urgent || len(s.pending) >= s.batchSize
	s.mu.Unlock()
	if wake {
		select {
		case s.arrived <- struct{}{}:
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

// write takes what waits, in batches, until ctx ends and nothing waits any more.
// While one batch is being written, the next gathers.
func (s *Store) write(ctx context.Context) {
	ticker := time.NewTicker(s.flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.flush()
			s.shut(ErrNotReady)
			return
		case <-ticker.C:
		case <-s.arrived:
		}
		s.flush()
	}
}

// writeTimeout is for one batch.
const writeTimeout = 20 * time.Second

// flush writes everything that waits.
func (s *Store) flush() {
	for {
		s.mu.Lock()
		n := min(len(s.pending), s.batchSize)
		batch := s.pending[:n:n]
		s.pending = s.pending[n:]
		if len(s.pending) == 0 {
			s.pending = nil
		}
		s.mu.Unlock()
		if n == 0 {
			return
		}
		// What has been taken is written to its end, even while the process ends.
		ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
		s.writeBatch(ctx, batch)
		cancel()
	}
}

// shut refuses what comes later, and what still waits.
func (s *Store) shut(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, r := range s.pending {
		r.err = err
		close(r.done)
	}
	s.pending = nil
}

// writeBatch makes a batch of changes in one transaction. If that fails, each is
// tried alone, so that one that cannot be made does not hold up the others.
func (s *Store) writeBatch(ctx context.Context, batch []*request) {
	err := s.transact(ctx, batch)
	if err != nil && len(batch) > 1 && s.db.PingContext(ctx) == nil {
		for _, r := range batch {
			if err := s.transact(ctx, []*request{r}); err != nil {
				r.err = err
			}
		}
	} else if err != nil {
		for _, r := range batch {
			r.err = err
		}
	}
	told := false
	for _, r := range batch {
		told = told || (r.err == nil && r.delivers)
		close(r.done)
	}
	if told {
		select {
		case s.outbox <- struct{}{}:
		default:
		}
	}
}

// transact makes changes in one transaction. A conflict concerns only the one that
// has it.
func (s *Store) transact(ctx context.Context, batch []*request) error {
	tx, err := s.db.BeginTx(ctx, nil)
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
