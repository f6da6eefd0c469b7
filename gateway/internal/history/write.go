package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Write writes a record and waits until it is in the database.
func (s *Store) Write(ctx context.Context, r Record) (Written, error) {
	return s.record(ctx, r, true)
}

// WriteLater writes a record within the flush interval, together with others. Use it if no request waits for the record.
func (s *Store) WriteLater(ctx context.Context, r Record) (Written, error) {
	return s.record(ctx, r, false)
}

// maxPending bounds the pending records. Further events wait at the Broker.
const maxPending = 10_000

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
func (s *Store) submit(ctx context.Context, req *request) error {
	req.done = make(chan struct{})
	s.mu.Lock()
	if s.closed || len(s.pending) >= maxPending {
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

// write makes the pending changes in batches, until ctx ends and none is pending. While it writes one batch, the next one collects.
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

// writeTimeout bounds the write of one batch.
const writeTimeout = 20 * time.Second

// flush makes all pending changes.
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

// shut refuses all pending and later changes.
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

// writeBatch makes a batch of changes in one transaction. If that fails, it makes each change in a transaction of its own, so that
// one failing change does not block the others.
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
	delivers := false
	for _, r := range batch {
		delivers = delivers || (r.err == nil && r.delivers)
		close(r.done)
	}
	if delivers {
		select {
		case s.outbox <- struct{}{}:
		default:
		}
	}
}

// transact makes changes in one transaction. A conflict fails only its own change.
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

func (s *Store) whyNotReady() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fallback != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, s.fallback)
	}
	return ErrNotReady
}
