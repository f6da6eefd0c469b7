package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// LetterQuery selects dead letters. Its zero value selects all.
type LetterQuery struct {
	// Sequence selects one dead letter; 0 means all.
	Sequence int64
	// Types are exact, or end in * for all that begin so.
	Types       []string
	Namespace   string
	Name        string
	Source      string
	Destination string
	Since       time.Time
	Until       time.Time
	// Text occurs in an attribute, the error or the data. Case is ignored.
	Text string
	Order
	// Limit is the maximum number of dead letters.
	Limit int
}

func (q LetterQuery) where() conditions {
	var c conditions
	if q.Sequence > 0 {
		c.add("seq = ?", q.Sequence)
	}
	c.types(q.Types)
	c.equal("namespace", q.Namespace)
	c.equal("name", q.Name)
	c.equal("source", q.Source)
	c.equal("destination", q.Destination)
	c.during(q.Since, q.Until)
	c.mention(q.Text, "id", "source", "destination", "type", "subject", "error", "data")
	return c
}

// DeadLetters reads what could not be delivered, the newest first unless the query has another order.
func (s *Store) DeadLetters(ctx context.Context, q LetterQuery) (all []DeadLetter, err error) {
	if !s.ready.Load() {
		return nil, s.whyNotReady()
	}
	c := q.where()
	order := c.page(q.Order)
	where, args := c.sql()
	rows, err := s.query(ctx, "SELECT seq, id, source, destination, type, subject, namespace, name, code, error, time, data FROM dead_letters WHERE "+
		where+order+" LIMIT ?", append(args, q.Limit)...)
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var d DeadLetter
		var at int64
		err := rows.Scan(&d.Sequence, &d.ID, &d.Source, &d.Destination, &d.Type, &d.Subject, &d.Namespace, &d.Name, &d.Code, &d.Error, &at, &d.Data)
		if err != nil {
			return nil, fmt.Errorf("read dead letters: %w", err)
		}
		d.Time = timeOf(at)
		all = append(all, d)
	}
	return all, rows.Err()
}

// CountDeadLetters counts the dead letters that a query selects on all pages.
func (s *Store) CountDeadLetters(ctx context.Context, q LetterQuery) (int, error) {
	if !s.ready.Load() {
		return 0, s.whyNotReady()
	}
	c := q.where()
	where, args := c.sql()
	n := 0
	if err := s.queryRow(ctx, "SELECT COUNT(*) FROM dead_letters WHERE "+where, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// RemoveDeadLetter deletes a dead letter and, in the same transaction, adds the deliveries that replace it. It reports whether the dead
// letter existed; otherwise nothing changes.
func (s *Store) RemoveDeadLetter(ctx context.Context, sequence int64, replacements ...Delivery) (bool, error) {
	if !s.ready.Load() {
		return false, s.whyNotReady()
	}
	removed := false
	err := s.submit(ctx, &request{urgent: true, delivers: len(replacements) > 0, apply: func(ctx context.Context, tx *sql.Tx) error {
		n, err := s.exec(ctx, tx, "DELETE FROM dead_letters WHERE seq = ?", sequence)
		if err != nil || n == 0 {
			return err
		}
		for _, d := range replacements {
			if err := s.insertDelivery(ctx, tx, d); err != nil {
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
