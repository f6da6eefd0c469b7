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

// Events reads events, the newest first unless the query has another order.
func (s *Store) Events(ctx context.Context, q Query) (all []Event, err error) {
	c := q.where()
	order := c.page(q.Order)
	where, args := c.sql()
	return s.events(ctx, selectEvents+where+order+" LIMIT ?", append(args, q.Limit)...)
}

// CausedBy reads the events that the delivery of another has led to.
func (s *Store) CausedBy(ctx context.Context, id string) ([]Event, error) {
	return s.events(ctx, eventsCausedBy, fit(id, 255))
}

// Has reports whether an event is in the history.
func (s *Store) Has(ctx context.Context, id, source string) (bool, error) {
	if !s.ready.Load() {
		return false, s.whyNotReady()
	}
	var one int
	row := s.queryRow(ctx, "SELECT 1 FROM events WHERE id = ? AND source = ?", fit(id, 255), fit(source, 255))
	err := row.Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for event %s: %w", id, err)
	}
	return true, nil
}

// Count counts the events that a query selects, up to a bound.
func (s *Store) Count(ctx context.Context, q Query, bound int) (int, error) {
	if !s.ready.Load() {
		return 0, s.whyNotReady()
	}
	c := q.where()
	where, args := c.sql()
	statement := "SELECT COUNT(*) FROM (SELECT 1 FROM events WHERE " + where + " LIMIT ?) counted"
	n := 0
	if err := s.queryRow(ctx, statement, append(args, bound)...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count events: %w", err)
	}
	return n, nil
}

func (s *Store) events(ctx context.Context, statement string, args ...any) (all []Event, err error) {
	if !s.ready.Load() {
		return nil, s.whyNotReady()
	}
	rows, err := s.query(ctx, statement, args...)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var e Event
		var at int64
		var data string
		err := rows.Scan(&e.Sequence, &e.ID, &e.Source, &e.Type, &e.Subject, &at, &e.Kind, &e.Namespace, &e.Name, &e.UID, &e.Cluster, &e.Cause, &data)
		if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		e.Time, e.Data = timeOf(at), json.RawMessage(data)
		all = append(all, e)
	}
	return all, rows.Err()
}

// The first and the last time that can be written in JSON.
var (
	firstTime = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMicro()
)

// timeOf converts a time of the database, and moves a time that JSON cannot represent to the nearest one.
func timeOf(micro int64) time.Time {
	return time.UnixMicro(min(max(micro, firstTime), lastTime)).UTC()
}
