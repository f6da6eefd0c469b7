package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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
	// Before is the sequence that results come before; 0 means the newest.
	Before int64
	// Limit is the maximum number of events.
	Limit int
}

// where writes the conditions of the query.
func (q Query) where() (string, []any) {
	var parts []string
	var args []any
	equal := func(column, value string) {
		if value != "" {
			parts, args = append(parts, column+" = ?"), append(args, value)
		}
	}
	if len(q.Types) > 0 {
		var types []string
		for _, t := range q.Types {
			if prefix, ok := strings.CutSuffix(t, "*"); ok {
				types, args = append(types, "type LIKE ? ESCAPE '!'"), append(args, like.Replace(prefix)+"%")
			} else {
				types, args = append(types, "type = ?"), append(args, t)
			}
		}
		parts = append(parts, "("+strings.Join(types, " OR ")+")")
	}
	if q.Namespaces != nil {
		marks := make([]string, len(q.Namespaces))
		for i, namespace := range q.Namespaces {
			marks[i], args = "?", append(args, namespace)
		}
		parts = append(parts, "namespace IN ("+strings.Join(append(marks, "NULL"), ", ")+")")
	}
	equal("kind", q.Kind)
	equal("namespace", q.Namespace)
	equal("name", q.Name)
	equal("uid", q.UID)
	equal("cluster", q.Cluster)
	equal("source", q.Source)
	if !q.Since.IsZero() {
		parts, args = append(parts, "time >= ?"), append(args, q.Since.UnixMicro())
	}
	if !q.Until.IsZero() {
		parts, args = append(parts, "time < ?"), append(args, q.Until.UnixMicro())
	}
	if len(parts) == 0 {
		return "1 = 1", args
	}
	return strings.Join(parts, " AND "), args
}

var like = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// Events reads events, the newest first.
func (s *Store) Events(ctx context.Context, q Query) (all []Event, err error) {
	where, args := q.where()
	if q.Before > 0 {
		where, args = where+" AND seq < ?", append(args, q.Before)
	}
	return s.events(ctx, selectEvents+where+" ORDER BY seq DESC LIMIT ?", append(args, q.Limit)...)
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
	where, args := q.where()
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

// DeadLetters reads what could not be delivered, the newest first, from before a
// sequence, or the newest where that is 0.
func (s *Store) DeadLetters(ctx context.Context, before int64, limit int) (all []DeadLetter, err error) {
	if !s.ready.Load() {
		return nil, s.whyNotReady()
	}
	condition, args := "1 = 1", []any{}
	if before > 0 {
		condition, args = "seq < ?", append(args, before)
	}
	rows, err := s.query(ctx, "SELECT seq, id, source, destination, type, subject, namespace, name, code, error, time, data FROM dead_letters WHERE "+
		condition+" ORDER BY seq DESC LIMIT ?", append(args, limit)...)
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

// CountDeadLetters counts what could not be delivered.
func (s *Store) CountDeadLetters(ctx context.Context) (int, error) {
	if !s.ready.Load() {
		return 0, s.whyNotReady()
	}
	n := 0
	if err := s.queryRow(ctx, "SELECT COUNT(*) FROM dead_letters").Scan(&n); err != nil {
		return 0, fmt.Errorf("count dead letters: %w", err)
	}
	return n, nil
}
