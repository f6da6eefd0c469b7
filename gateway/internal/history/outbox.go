package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// outbox is the table of pending deliveries.
type outbox struct {
	*database
	writer  *writer
	letters deadLetters
	added   <-chan struct{}
}

// Outbox returns a channel that receives a value when new deliveries may be due.
func (o outbox) Outbox() <-chan struct{} { return o.added }

// Claim returns up to eight due deliveries to an endpoint, and postpones them to until, so that other replicas do not claim them
// meanwhile. They become due again then, unless Delivered, Retry or MoveToDeadLetters is called.
func (o outbox) Claim(ctx context.Context, endpoint string, now, until time.Time) ([]Delivery, error) {
	if err := o.requireReady(); err != nil {
		return nil, err
	}
	due, err := o.deliveriesWhere(ctx, dueDeliveries, fit(endpoint, 255), now.UnixMicro())
	if err != nil {
		return nil, err
	}
	if len(due) == 0 {
		return nil, nil
	}
	tx, err := o.sql.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("claim deliveries: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	var claimed []Delivery
	for _, d := range due {
		n, err := o.exec(ctx, tx, claimDelivery, until.UnixMicro(), d.Sequence, d.Due.UnixMicro())
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
func (o outbox) NextDue(ctx context.Context, endpoint string) (time.Time, bool, error) {
	if err := o.requireReady(); err != nil {
		return time.Time{}, false, err
	}
	var due sql.NullInt64
	row := o.queryRow(ctx, nextDue, fit(endpoint, 255))
	if err := row.Scan(&due); err != nil {
		return time.Time{}, false, fmt.Errorf("read what is due: %w", err)
	}
	return time.UnixMicro(due.Int64), due.Valid, nil
}

// MoveOtherEndpoints replaces the pending deliveries to endpoints that are not named, and are due before a time, by the dead letters
// that letter returns.
func (o outbox) MoveOtherEndpoints(ctx context.Context, names []string, due time.Time, letter func(Delivery) DeadLetter) error {
	if err := o.requireReady(); err != nil {
		return err
	}
	args := []any{due.UnixMicro(), ""}
	for _, name := range names {
		args = append(args, fit(name, 255))
	}
	pending, err := o.deliveriesWhere(ctx, selectDeliveries+"due < ? AND endpoint NOT IN (?"+strings.Repeat(", ?", len(names))+") ORDER BY seq", args...)
	if err != nil {
		return err
	}
	for _, d := range pending {
		if err := o.MoveToDeadLetters(ctx, d, letter(d)); err != nil {
			return err
		}
	}
	return nil
}

// Delivered deletes a delivery that the endpoint has accepted.
func (o outbox) Delivered(ctx context.Context, d Delivery) error {
	err := o.writer.submit(ctx, &request{urgent: true, apply: func(ctx context.Context, tx *sql.Tx) error {
		_, err := o.exec(ctx, tx, deleteDelivery, d.Sequence)
		return err
	}})
	if err != nil {
		return fmt.Errorf("remove delivery of event %s: %w", d.EventID, err)
	}
	return nil
}

// Retry records that a delivery failed and is due again at d.Due.
func (o outbox) Retry(ctx context.Context, d Delivery) error {
	_, err := o.exec(ctx, nil, "UPDATE deliveries SET attempts = ?, due = ?, error = ? WHERE seq = ?",
		d.Attempts, d.Due.UnixMicro(), fit(d.Error, 1024), d.Sequence)
	if err != nil {
		return fmt.Errorf("postpone delivery of event %s: %w", d.EventID, err)
	}
	return nil
}

// MoveToDeadLetters replaces a delivery that failed for good by a dead letter.
func (o outbox) MoveToDeadLetters(ctx context.Context, d Delivery, letter DeadLetter) error {
	tx, err := o.sql.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("move delivery of event %s to the dead letters: %w", d.EventID, err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := o.letters.insert(ctx, tx, letter); err != nil {
		return err
	}
	if _, err := o.exec(ctx, tx, deleteDelivery, d.Sequence); err != nil {
		return fmt.Errorf("move delivery of event %s to the dead letters: %w", d.EventID, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("move delivery of event %s to the dead letters: %w", d.EventID, err)
	}
	return nil
}

func (o outbox) deliveriesWhere(ctx context.Context, statement string, args ...any) (all []Delivery, err error) {
	rows, err := o.query(ctx, statement, args...)
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

// RemoveDeadLetter deletes a dead letter and, in the same transaction, adds the deliveries that replace it. It reports whether the dead
// letter existed; otherwise nothing changes.
func (o outbox) RemoveDeadLetter(ctx context.Context, sequence int64, replacements ...Delivery) (bool, error) {
	if err := o.requireReady(); err != nil {
		return false, err
	}
	removed := false
	err := o.writer.submit(ctx, &request{urgent: true, delivers: len(replacements) > 0, apply: func(ctx context.Context, tx *sql.Tx) error {
		n, err := o.exec(ctx, tx, "DELETE FROM dead_letters WHERE seq = ?", sequence)
		if err != nil || n == 0 {
			return err
		}
		for _, d := range replacements {
			if err := o.insert(ctx, tx, d); err != nil {
				return err
			}
		}
		removed = true
		return nil
	}})
	if err != nil {
		return false, fmt.Errorf("remove dead letter %d: %w", sequence, err)
	}
	return removed, nil
}

// insert adds a delivery in a transaction.
func (o outbox) insert(ctx context.Context, tx *sql.Tx, d Delivery) error {
	_, err := o.exec(ctx, tx, insertDelivery,
		fit(d.Endpoint, 255), fit(d.EventID, 255), fit(d.Type, 255), d.Body, d.Due.UnixMicro(), d.Created.UnixMicro())
	if err != nil {
		return fmt.Errorf("write delivery of event %s: %w", d.EventID, err)
	}
	return nil
}
