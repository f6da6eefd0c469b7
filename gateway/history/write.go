package history

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Write records something and waits until it is in the database.
func (s *Store) Write(ctx context.Context, r Record) (Written, error) {
	return s.submit(ctx, r, true)
}

// WriteLater is Write for what nobody waits for: it may take as long as the flush
// interval, so that many are written at once.
func (s *Store) WriteLater(ctx context.Context, r Record) (Written, error) {
	return s.submit(ctx, r, false)
}

// mostPending bounds what waits to be written. What is beyond waits at the broker.
const mostPending = 10_000

func (s *Store) submit(ctx context.Context, r Record, urgent bool) (Written, error) {
	if !s.ready.Load() {
		return Written{}, s.whyNotReady()
	}
	req := &request{record: r, urgent: urgent, done: make(chan struct{})}
	s.mu.Lock()
	if s.closed || len(s.pending) >= mostPending {
		s.mu.Unlock()
		return Written{}, fmt.Errorf("write to the history: %w", ErrNotReady)
	}
	s.pending = append(s.pending, req)
	wake := urgent || len(s.pending) >= s.batchSize
	s.mu.Unlock()
	if wake {
		select {
		case s.arrived <- struct{}{}:
		default:
		}
	}
	select {
	case <-req.done:
		return req.written, req.err
	case <-ctx.Done():
		return Written{}, ctx.Err()
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

// writeBatch writes a batch in one transaction. If that fails, each record is
// tried alone, so that one that cannot be written does not hold up the others.
func (s *Store) writeBatch(ctx context.Context, batch []*request) {
	err := s.transact(ctx, batch)
	if err != nil && len(batch) > 1 && s.db.PingContext(ctx) == nil {
		for _, r := range batch {
			r.written, r.err = Written{}, nil
			if err := s.transact(ctx, []*request{r}); err != nil {
				r.err = err
			}
		}
	} else if err != nil {
		for _, r := range batch {
			r.written, r.err = Written{}, err
		}
	}
	told := false
	for _, r := range batch {
		told = told || (r.err == nil && len(r.record.Deliveries) > 0)
		close(r.done)
	}
	if told {
		select {
		case s.outbox <- struct{}{}:
		default:
		}
	}
}

// transact writes records in one transaction. A conflict concerns only the record
// that has it.
func (s *Store) transact(ctx context.Context, batch []*request) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin to write: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, r := range batch {
		r.written, r.err = s.apply(ctx, tx, &r.record)
		if r.err != nil && !errors.Is(r.err, ErrConflict) {
			return r.err
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("write to the history: %w", err)
	}
	return nil
}
