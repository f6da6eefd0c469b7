package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Outbox returns a channel that receives a value when new deliveries may be due.
func (s *Store) Outbox() <-chan struct{} { return s.outbox }

// Claim returns up to eight due deliveries to an endpoint, and postpones them to until, so that other replicas do not claim them
// meanwhile. They become due again then, unless Delivered, Retry or MoveToDeadLetters is called.
func (s *Store) Claim(ctx context.Context, endpoint string, now, until time.Time) ([]Delivery, error) {
	if !s.ready.Load() {
		return nil, ErrNotReady
	}
	due, err := s.deliveriesWhere(ctx, dueDeliveries, fit(endpoint, 255), now.UnixMicro())
	if err != nil {
		return nil, err
	}
	if len(due) == 0 {
		return nil, nil
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("claim deliveries: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	var claimed []Delivery
	for _, d := range due {
		n, err := s.exec(ctx, tx, claimDelivery, until.UnixMicro(), d.Sequence, d.Due.UnixMicro())
		if err != nil {
			return nil, fmt.Errorf("claim delivery of event %s: %w", d.EventID, err)
		}
		if n > 0 {
			claimed = append(claimed, d)
		}
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("claim deliveries: %w", err)
	}
	return claimed, nil
}

// NextDue returns when the next delivery to an endpoint is due, and false if there is none.
func (s *Store) NextDue(ctx context.Context, endpoint string) (time.Time, bool, error) {
	if !s.ready.Load() {
		return time.Time{}, false, ErrNotReady
	}
	var due sql.NullInt64
	row := s.queryRow(ctx, nextDue, fit(endpoint, 255))
	if err := row.Scan(&due); err != nil {
		return time.Time{}, false, fmt.Errorf("read what is due: %w", err)
	}
	return time.UnixMicro(due.Int64), due.Valid, nil
}

// MoveOtherEndpoints replaces the pending deliveries to endpoints that are not named by the dead letters that letter returns.
func (s *Store) MoveOtherEndpoints(ctx context.Context, names []string, letter func(Delivery) DeadLetter) error {
	if !s.ready.Load() {
		return ErrNotReady
	}
	args := []any{""}
	for _, name := range names {
		args = append(args, fit(name, 255))
	}
	pending, err := s.deliveriesWhere(ctx, selectDeliveries+"endpoint NOT IN (?"+strings.Repeat(", ?", len(names))+") ORDER BY seq", args...)
	if err != nil {
		return err
	}
	for _, d := range pending {
		if err := s.MoveToDeadLetters(ctx, d, letter(d)); err != nil {
			return err
		}
	}
	return nil
}

// Delivered deletes a delivery that the endpoint has accepted.
func (s *Store) Delivered(ctx context.Context, d Delivery) error {
	err := s.submit(ctx, &request{urgent: true, apply: func(ctx context.Context, tx *sql.Tx) error {
		_, err := s.exec(ctx, tx, deleteDelivery, d.Sequence)
		return err
	}})
	if err != nil {
		return fmt.Errorf("remove delivery of event %s: %w", d.EventID, err)
	}
	return nil
}

// Retry records that a delivery failed and is due again at d.Due.
func (s *Store) Retry(ctx context.Context, d Delivery) error {
	_, err := s.exec(ctx, nil, "UPDATE deliveries SET attempts = ?, due = ?, error = ? WHERE seq = ?",
		d.Attempts, d.Due.UnixMicro(), fit(d.Error, 1024), d.Sequence)
	if err != nil {
		return fmt.Errorf("postpone delivery of event %s: %w", d.EventID, err)
	}
	return nil
}

// MoveToDeadLetters replaces a delivery that failed for good by a dead letter.
func (s *Store) MoveToDeadLetters(ctx context.Context, d Delivery, letter DeadLetter) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("move delivery of event %s to the dead letters: %w", d.EventID, err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := s.apply(ctx, tx, &Record{DeadLetters: []DeadLetter{letter}}); err != nil {
		return err
	}
	if _, err := s.exec(ctx, tx, deleteDelivery, d.Sequence); err != nil {
		return fmt.Errorf("move delivery of event %s to the dead letters: %w", d.EventID, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("move delivery of event %s to the dead letters: %w", d.EventID, err)
	}
	return nil
}

func (s *Store) deliveriesWhere(ctx context.Context, statement string, args ...any) (all []Delivery, err error) {
	rows, err := s.query(ctx, statement, args...)
	if err != nil {
		return nil, fmt.Errorf("read deliveries: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var d Delivery
		var due, created int64
		if err := rows.Scan(&d.Sequence, &d.Endpoint, &d.EventID, &d.Type, &d.Body, &d.Attempts, &due, &d.Error, &created); err != nil {
			return nil, fmt.Errorf("read deliveries: %w", err)
		}
		d.Due, d.Created = time.UnixMicro(due).UTC(), time.UnixMicro(created).UTC()
		all = append(all, d)
	}
	return all, rows.Err()
}
