package history

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Event is an event in the history.
type Event struct {
	// Sequence is the position in the history. The database assigns it.
	Sequence int64
	ID       string
	Source   string
	Type     string
	Subject  string
	Time     time.Time
	Object
	UID     string
	Cluster string
	// Cause is the identifier of the event whose delivery led to this one, or empty.
	Cause string
	Data  json.RawMessage
}

// Object is the object of an event. Its fields may be empty.
type Object struct {
	Kind, Namespace, Name string
}

// Known is the last record of an object.
type Known struct {
	// ID is the object's UID, or another identifier that is never reused.
	ID string
	Object
	// Version counts the records of the object. 0 means that the object has no record.
	Version  int64
	Document json.RawMessage
}

// Delivery is a pending delivery of an event to an endpoint.
type Delivery struct {
	Sequence int64
	Endpoint string
	EventID  string
	Type     string
	// Body is the event as it is sent.
	Body     string
	Attempts int
	Due      time.Time
	Error    string
	Created  time.Time
}

// DeadLetter is an event that could not be delivered.
type DeadLetter struct {
	Sequence int64
	ID       string
	Source   string
	// Destination is the endpoint or function that did not accept the event.
	Destination string
	Type        string
	Subject     string
	Namespace   string
	Name        string
	// Code is the status code of the last answer, or 0.
	Code  int
	Error string
	Time  time.Time
	Data  string
}

// Record is written in one transaction.
type Record struct {
	// Known replaces the record of an object if that still has the version of Known; Forget deletes it. Otherwise nothing is written
	// and the error is ErrConflict.
	Known  *Known
	Forget bool
	// Events are written unless they are in the history already.
	Events []Event
	// Deliveries are written only for events that are new.
	Deliveries []Delivery
	// DeadLetters are written unless they exist already.
	DeadLetters []DeadLetter
}

// Written is what a record has changed.
type Written struct {
	// Events are the events that were new.
	Events []Event
	// DeadLetters is the number of new dead letters.
	DeadLetters int
}

// apply writes a record in a transaction.
func (s *Store) apply(ctx context.Context, tx *sql.Tx, r *Record) (Written, error) {
	var out Written
	if err := s.applyKnown(ctx, tx, r); err != nil {
		return out, err
	}
	for _, e := range r.Events {
		n, err := s.exec(ctx, tx, s.insertEvent,
			fit(e.ID, 255), fit(e.Source, 255), fit(e.Type, 255), fit(e.Subject, 1024), e.Time.UnixMicro(),
			fit(e.Kind, 63), fit(e.Namespace, 63), fit(e.Name, 253), fit(e.UID, 63), fit(e.Cluster, 63), fit(e.Cause, 255), string(e.Data))
		if err != nil {
			return out, fmt.Errorf("write event %s: %w", e.ID, err)
		}
		if n > 0 {
			out.Events = append(out.Events, e)
		}
	}
	if len(out.Events) > 0 {
		for _, d := range r.Deliveries {
			if err := s.insertDelivery(ctx, tx, d); err != nil {
				return out, err
			}
		}
	}
	for _, d := range r.DeadLetters {
		n, err := s.exec(ctx, tx, s.dialect.insertNew("dead_letters", "identity, id, source, destination, type, subject, namespace, name, code, error, time, data", 12),
			d.identity(), fit(d.ID, 255), fit(d.Source, 255), fit(d.Destination, 1024), fit(d.Type, 255), fit(d.Subject, 1024),
			fit(d.Namespace, 63), fit(d.Name, 253), d.Code, fit(d.Error, 2048), d.Time.UnixMicro(), d.Data)
		if err != nil {
			return out, fmt.Errorf("write dead letter %s: %w", d.ID, err)
		}
		out.DeadLetters += int(n)
	}
	return out, nil
}

func (d DeadLetter) identity() string {
	sum := sha256.Sum256([]byte(d.ID + "\x00" + d.Source + "\x00" + d.Destination))
	return hex.EncodeToString(sum[:])
}

func (s *Store) applyKnown(ctx context.Context, tx *sql.Tx, r *Record) error {
	k := r.Known
	if k == nil {
		return nil
	}
	var n int64
	var err error
	switch {
	case r.Forget:
		n, err = s.exec(ctx, tx, deleteKnown, k.ID, k.Version)
	case k.Version == 0:
		n, err = s.exec(ctx, tx, s.insertKnown,
			k.ID, k.Kind, k.Namespace, k.Name, 1, string(k.Document))
	default:
		n, err = s.exec(ctx, tx, updateKnown,
			k.Version+1, string(k.Document), k.ID, k.Version)
	}
	if err != nil {
		return fmt.Errorf("record %s %s/%s: %w", k.Kind, k.Namespace, k.Name, err)
	}
	if n == 0 {
		return ErrConflict
	}
	return nil
}

// fit shortens what is too long for its column, so that different values stay
// different.
func fit(s string, most int) string {
	if len(s) <= most {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	mark := "~" + hex.EncodeToString(sum[:8])
	cut := most - len(mark)
	for cut > 0 && s[cut]&0xc0 == 0x80 {
		cut--
	}
	return s[:cut] + mark
}

// Known reads what is recorded of an object by its identifier. Version 0 means
// nothing.
func (s *Store) Known(ctx context.Context, id string) (Known, error) {
	if !s.ready.Load() {
		return Known{}, ErrNotReady
	}
	k := Known{ID: id}
	var document string
	row := s.queryRow(ctx, selectKnown, id)
	err := row.Scan(&k.Kind, &k.Namespace, &k.Name, &k.Version, &document)
	if errors.Is(err, sql.ErrNoRows) {
		return k, nil
	}
	if err != nil {
		return k, fmt.Errorf("read what is known of %s: %w", id, err)
	}
	k.Document = json.RawMessage(document)
	return k, nil
}

// KnownNamed reads what is recorded of all objects that have had a name.
func (s *Store) KnownNamed(ctx context.Context, o Object) ([]Known, error) {
	return s.knownAll(ctx, knownNamed, o.Kind, o.Namespace, o.Name)
}

// KnownOf reads what is recorded of all objects of a kind.
func (s *Store) KnownOf(ctx context.Context, kind string) ([]Known, error) {
	return s.knownAll(ctx, knownOf, kind)
}

func (s *Store) knownAll(ctx context.Context, statement string, args ...any) (all []Known, err error) {
	if !s.ready.Load() {
		return nil, ErrNotReady
	}
	rows, err := s.query(ctx, statement, args...)
	if err != nil {
		return nil, fmt.Errorf("read what is known: %w", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var k Known
		var document string
		if err := rows.Scan(&k.ID, &k.Kind, &k.Namespace, &k.Name, &k.Version, &document); err != nil {
			return nil, fmt.Errorf("read what is known: %w", err)
		}
		k.Document = json.RawMessage(document)
		all = append(all, k)
	}
	return all, rows.Err()
}

func (s *Store) insertDelivery(ctx context.Context, tx *sql.Tx, d Delivery) error {
	_, err := s.exec(ctx, tx, insertDelivery,
		fit(d.Endpoint, 255), fit(d.EventID, 255), fit(d.Type, 255), d.Body, d.Due.UnixMicro(), d.Created.UnixMicro())
	if err != nil {
		return fmt.Errorf("write delivery of event %s: %w", d.EventID, err)
	}
	return nil
}
