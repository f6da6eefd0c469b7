// Package history stores events, the last record of each object, pending deliveries and dead letters in a database.
package history

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vitistack/stack/gateway/internal/config"
)

// Store is the database. Its methods are safe for concurrent use.
type Store struct {
	*database
	events
	objects
	deadLetters
	outbox
	writer    *writer
	log       *slog.Logger
	retention time.Duration
	migrated  chan struct{}
	baseline  atomic.Int64
}

// Open opens the database of a URL without connecting to it; Run connects. A URL of an unknown kind is an error.
func Open(c *config.Database, log *slog.Logger) (*Store, error) {
	d, dsn, err := parseURL(c.URL, c.StateDir)
	if err != nil {
		return nil, fmt.Errorf("read DATABASE_URL: %w", err)
	}
	db, err := sql.Open(d.driver, dsn)
	if err != nil {
		return nil, fmt.Errorf("read DATABASE_URL: %w", hide(err, c.URL))
	}
	d.pool(db, c)
	data := &database{
		dialect: d, sql: db,
		insertEvent: d.insertNew("events", "id, source, type, subject, time, kind, namespace, name, uid, cluster, cause, data", 12),
		insertKnown: d.insertNew("known", "id, kind, namespace, name, version, document", 6),
	}
	added := make(chan struct{}, 1)
	w := &writer{database: data, batchSize: c.BatchSize, flushInterval: c.FlushInterval, arrived: make(chan struct{}, 1), delivers: added}
	letters := deadLetters{data}
	return &Store{
		database: data, events: events{data}, objects: objects{data}, deadLetters: letters,
		outbox: outbox{database: data, writer: w, letters: letters, added: added},
		writer: w, log: log, retention: c.Retention, migrated: make(chan struct{}),
	}, nil
}

// Migrated returns a channel that is closed when the schema is migrated.
func (s *Store) Migrated() <-chan struct{} { return s.migrated }

// Baseline returns when the history began. Older objects lead to no events.
func (s *Store) Baseline() time.Time { return time.UnixMicro(s.baseline.Load()).UTC() }

// reconnectDelay is the time between two attempts to reach the database at the start.
const reconnectDelay = 2 * time.Second

// Run waits for the database, migrates the schema, and writes records until ctx ends. It then writes pending records and closes the
// database.
func (s *Store) Run(ctx context.Context) {
	defer func() { _ = s.sql.Close() }()
	for {
		err := s.prepare(ctx)
		if err == nil {
			break
		}
		if isNew := s.setProblem(err); isNew && ctx.Err() == nil {
			s.log.Warn("Cannot use the database, trying again", "mode", s.dialect.name, "error", err.Error())
		}
		select {
		case <-ctx.Done():
			s.writer.shut(ErrNotReady)
			return
		case <-time.After(reconnectDelay):
		}
	}
	s.ready.Store(true)
	close(s.migrated)
	s.log.Info("Database is ready", "mode", s.dialect.name)
	var running sync.WaitGroup
	running.Go(func() { s.expire(ctx) })
	s.writer.run(ctx)
	running.Wait()
}

// prepare migrates the schema, reads the baseline and prepares frequent statements.
func (s *Store) prepare(ctx context.Context) error {
	if err := s.migrate(ctx); err != nil {
		return err
	}
	now := time.Now().UnixMicro()
	if _, err := s.exec(ctx, nil, s.dialect.insertNew("marks", "name, time", 2), "baseline", now); err != nil {
		return fmt.Errorf("write the baseline: %w", err)
	}
	var baseline int64
	row := s.queryRow(ctx, "SELECT time FROM marks WHERE name = ?", "baseline")
	if err := row.Scan(&baseline); err != nil {
		return fmt.Errorf("read the baseline: %w", err)
	}
	s.baseline.Store(baseline)
	return s.prepareStatements(ctx)
}

// Old events are first deleted some time after the start, so that a large deletion does not delay the first requests, and then once
// in each period.
const (
	firstExpiry  = time.Minute
	expiryPeriod = time.Hour
)

// expire deletes what is older than the retention, until ctx ends.
func (s *Store) expire(ctx context.Context) {
	timer := time.NewTimer(firstExpiry)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := s.Expire(ctx, time.Now().Add(-s.retention)); err != nil && ctx.Err() == nil {
			s.log.Warn("Cannot remove old events", "error", err.Error())
		}
		timer.Reset(expiryPeriod)
	}
}

// Expire deletes the events, dead letters and pending deliveries from before a time.
func (s *Store) Expire(ctx context.Context, before time.Time) error {
	if err := s.requireReady(); err != nil {
		return err
	}
	at := before.UnixMicro()
	for _, statement := range []string{
		"DELETE FROM events WHERE time < ?",
		"DELETE FROM dead_letters WHERE time < ?",
		"DELETE FROM deliveries WHERE created < ?",
	} {
		if _, err := s.exec(ctx, nil, statement, at); err != nil {
			return fmt.Errorf("remove old events: %w", err)
		}
	}
	return nil
}
