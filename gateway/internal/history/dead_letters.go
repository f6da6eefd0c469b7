package history

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
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

// deadLetters is the table of events that could not be delivered.
type deadLetters struct{ *database }

// DeadLetters reads what could not be delivered, the newest first unless the query has another order.
func (l deadLetters) DeadLetters(ctx context.Context, q LetterQuery) (all []DeadLetter, err error) {
	if err := l.requireReady(); err != nil {
		return nil, err
	}
	c := q.where()
	order := c.page(q.Order)
	where, args := c.sql()
	rows, err := l.query(ctx, "SELECT seq, id, source, destination, type, subject, namespace, name, code, error, time, data FROM dead_letters WHERE "+
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
func (l deadLetters) CountDeadLetters(ctx context.Context, q LetterQuery) (int, error) {
	if err := l.requireReady(); err != nil {
		return 0, err
	}
	c := q.where()
	where, args := c.sql()
	n := 0
	if err := l.queryRow(ctx, "SELECT COUNT(*) FROM dead_letters WHERE "+where, args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}

// insert adds a dead letter in a transaction, and returns the number of new ones: 0 if it exists already.
func (l deadLetters) insert(ctx context.Context, tx *sql.Tx, d DeadLetter) (int, error) {
	n, err := l.exec(ctx, tx, l.dialect.insertNew("dead_letters", "identity, id, source, destination, type, subject, namespace, name, code, error, time, data", 12),
		d.identity(), fit(d.ID, 255), fit(d.Source, 255), fit(d.Destination, 1024), fit(d.Type, 255), fit(d.Subject, 1024),
		fit(d.Namespace, 63), fit(d.Name, 253), d.Code, fit(d.Error, 2048), d.Time.UnixMicro(), d.Data)
	if err != nil {
		return 0, fmt.Errorf("write dead letter %s: %w", d.ID, err)
	}
	return int(n), nil
}

func (d DeadLetter) identity() string {
	sum := sha256.Sum256([]byte(d.ID + "\x00" + d.Source + "\x00" + d.Destination))
	return hex.EncodeToString(sum[:])
}
