package history

import (
	"context"
	"database/sql"
	"encoding/json"
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

// Write writes a record and waits until it is in the database.
func (s *Store) Write(ctx context.Context, r Record) (Written, error) {
	return s.record(ctx, r, true)
}

// WriteLater writes a record within the flush interval, together with others. Use it if no request waits for the record.
func (s *Store) WriteLater(ctx context.Context, r Record) (Written, error) {
	return s.record(ctx, r, false)
}

func (s *Store) record(ctx context.Context, r Record, urgent bool) (Written, error) {
	if err := s.requireReady(); err != nil {
		return Written{}, err
	}
	var written Written
	err := s.writer.submit(ctx, &request{urgent: urgent, delivers: len(r.Deliveries) > 0, apply: func(ctx context.Context, tx *sql.Tx) (err error) {
		written, err = s.apply(ctx, tx, &r)
		return err
	}})
	if err != nil {
		return Written{}, err
	}
	return written, nil
}

// apply writes a record in a transaction.
func (s *Store) apply(ctx context.Context, tx *sql.Tx, r *Record) (Written, error) {
	var out Written
	if r.Known != nil {
		if err := s.objects.replace(ctx, tx, *r.Known, r.Forget); err != nil {
			return out, err
		}
	}
	for _, e := range r.Events {
		added, err := s.events.insert(ctx, tx, e)
		if err != nil {
			return out, err
		}
		if added {
			out.Events = append(out.Events, e)
		}
	}
	if len(out.Events) > 0 {
		for _, d := range r.Deliveries {
			if err := s.outbox.insert(ctx, tx, d); err != nil {
				return out, err
			}
		}
	}
	for _, d := range r.DeadLetters {
		n, err := s.deadLetters.insert(ctx, tx, d)
		if err != nil {
			return out, err
		}
		out.DeadLetters += n
	}
	return out, nil
}
