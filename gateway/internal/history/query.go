package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Query selects events. Its zero value selects all.
type Query struct {
	// Types are exact, or end in * for all that begin so.
	Types     []string
	Kind      string
	Namespace string
	// Namespaces are the visible namespaces; nil means all.
	Namespaces []string
	Name       string
	UID        string
	Cluster    string
	Source     string
	Since      time.Time
	Until      time.Time
	// Text occurs in an attribute or in the data. Case is ignored.
	Text string
	Order
	// Limit is the maximum number of events.
	Limit int
}

// where returns the conditions of the query.
func (q Query) where() conditions {
	var c conditions
	c.types(q.Types)
	if q.Namespaces != nil {
		c.oneOf("namespace", q.Namespaces)
	}
	c.equal("kind", q.Kind)
	c.equal("namespace", q.Namespace)
	c.equal("name", q.Name)
	c.equal("uid", q.UID)
	c.equal("cluster", q.Cluster)
	c.equal("source", q.Source)
	c.during(q.Since, q.Until)
	c.mention(q.Text, "id", "source", "type", "subject", "kind", "uid", "cluster", "data")
	return c
}

// events is the table of events.
type events struct{ *database }

// Events reads events, the newest first unless the query has another order.
func (e events) Events(ctx context.Context, q Query) (all []Event, err error) {
	c := q.where()
	order := c.page(q.Order)
	where, args := c.sql()
	return e.selectAll(ctx, selectEvents+where+order+" LIMIT ?", append(args, q.Limit)...)
}

// CausedBy reads the events that the delivery of another has led to.
func (e events) CausedBy(ctx context.Context, id string) ([]Event, error) {
	return e.selectAll(ctx, eventsCausedBy, fit(id, 255))
}

// Recorded is what the history has of an event with an id and a source.
type Recorded struct {
	Type, Subject string
	// Dead reports that a dead letter has the same id and source.
	Dead bool
}

// Find returns what the history has of an event, and false if it is not in the history.
func (e events) Find(ctx context.Context, id, source string) (found Recorded, known bool, err error) {
	if err := e.requireReady(); err != nil {
		return Recorded{}, false, err
	}
	letters := 0
	row := e.queryRow(ctx, "SELECT type, subject, (SELECT COUNT(*) FROM dead_letters d WHERE d.id = e.id AND d.source = e.source) FROM events e WHERE e.id = ? AND e.source = ?",
		fit(id, 255), fit(source, 255))
	err = row.Scan(&found.Type, &found.Subject, &letters)
	if errors.Is(err, sql.ErrNoRows) {
		return Recorded{}, false, nil
	}
	if err != nil {
		return Recorded{}, false, fmt.Errorf("look for event %s: %w", id, err)
	}
	found.Dead = letters > 0
	return found, true, nil
}

// Count counts the events that a query selects, up to a bound.
func (e events) Count(ctx context.Context, q Query, bound int) (int, error) {
	if err := e.requireReady(); err != nil {
		return 0, err
	}
	c := q.where()
	where, args := c.sql()
	statement := "SELECT COUNT(*) FROM (SELECT 1 FROM events WHERE " + where + " LIMIT ?) counted"
	n := 0
	if err := e.queryRow(ctx, statement, append(args, bound)...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	return n, nil
}

func (e events) selectAll(ctx context.Context, statement string, args ...any) (all []Event, err error) {
	if err := e.requireReady(); err != nil {
		return nil, err
	}
	rows, err := e.query(ctx, statement, args...)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var one Event
		var at int64
		var data string
		err := rows.Scan(&one.Sequence, &one.ID, &one.Source, &one.Type, &one.Subject, &at, &one.Kind, &one.Namespace, &one.Name, &one.UID, &one.Cluster, &one.Cause, &data)
		if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		one.Time, one.Data = timeOf(at), json.RawMessage(data)
		all = append(all, one)
	}
	return all, rows.Err()
}

// insert adds an event in a transaction, and reports whether it is new.
func (e events) insert(ctx context.Context, tx *sql.Tx, one Event) (bool, error) {
	n, err := e.exec(ctx, tx, e.insertEvent,
		fit(one.ID, 255), fit(one.Source, 255), fit(one.Type, 255), fit(one.Subject, 1024), one.Time.UnixMicro(),
		fit(one.Kind, 63), fit(one.Namespace, 63), fit(one.Name, 253), fit(one.UID, 63), fit(one.Cluster, 63), fit(one.Cause, 255), string(one.Data))
	if err != nil {
		return false, fmt.Errorf("write event %s: %w", one.ID, err)
	}
	return n > 0, nil
}
