package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// ErrNotReady is returned until the database has been reached and its schema is migrated.
var ErrNotReady = errors.New("the database is not ready")

// database runs statements that are written for any dialect. Its methods are safe for concurrent use.
type database struct {
	dialect dialect
	sql     *sql.DB
	// insertEvent and insertKnown are statements in the dialect of the database.
	insertEvent, insertKnown string
	// kept are the prepared statements by their text.
	kept map[string]*sql.Stmt
	// ready is true once the schema is migrated.
	ready atomic.Bool
	// problem is why it is not ready yet, as the last attempt told.
	problem atomic.Pointer[error]
	// writesFail is set after a change that could not be written, until Ping has written something.
	writesFail atomic.Bool
}

// Mode returns the kind of the database, for example sqlite.
func (d *database) Mode() string { return d.dialect.name }

// Stats returns statistics of the connections to the database.
func (d *database) Stats() sql.DBStats { return d.sql.Stats() }

// Ping returns an error unless the database answers, is migrated, and takes changes. A database whose disk is full, or that is read-only,
// answers and takes none, so Ping writes something after a change has failed.
func (d *database) Ping(ctx context.Context) error {
	if err := d.requireReady(); err != nil {
		return err
	}
	if err := d.sql.PingContext(ctx); err != nil {
		return fmt.Errorf("reach the database: %w", err)
	}
	if !d.writesFail.Swap(false) {
		return nil
	}
	if err := d.mark(ctx, "checked", time.Now()); err != nil {
		d.writesFail.Store(true)
		return fmt.Errorf("write to the database: %w", err)
	}
	return nil
}

// mark writes a time under a name.
func (d *database) mark(ctx context.Context, name string, at time.Time) error {
	n, err := d.exec(ctx, nil, "UPDATE marks SET time = ? WHERE name = ?", at.UnixMicro(), name)
	if err == nil && n == 0 {
		_, err = d.exec(ctx, nil, d.dialect.insertNew("marks", "name, time", 2), name, at.UnixMicro())
	}
	return err
}

// requireReady returns ErrNotReady with its reason until the schema is migrated.
func (d *database) requireReady() error {
	if d.ready.Load() {
		return nil
	}
	if problem := d.problem.Load(); problem != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, *problem)
	}
	return ErrNotReady
}

// setProblem records why the database is not ready, and reports whether that is new.
func (d *database) setProblem(err error) bool {
	former := d.problem.Swap(&err)
	return former == nil || (*former).Error() != err.Error()
}

// Statements that are run for each event, beside those of the dialect.
const (
	selectKnown = "SELECT kind, namespace, name, version, document FROM known WHERE id = ?"
	knownOf     = "SELECT id, kind, namespace, name, version, document FROM known WHERE kind = ?"
	knownNamed  = knownOf + " AND namespace = ? AND name = ?"
	updateKnown = "UPDATE known SET version = ?, document = ? WHERE id = ? AND version = ?"
	deleteKnown = "DELETE FROM known WHERE id = ? AND version = ?"

	selectEvents   = "SELECT seq, id, source, type, subject, time, kind, namespace, name, uid, cluster, cause, data FROM events WHERE "
	eventsCausedBy = selectEvents + "cause = ? ORDER BY seq"

	insertDelivery   = "INSERT INTO deliveries (endpoint, event_id, type, body, attempts, due, error, created) VALUES (?, ?, ?, ?, 0, ?, '', ?)"
	selectDeliveries = "SELECT seq, endpoint, event_id, type, body, attempts, due, error, created FROM deliveries WHERE "
	// dueDeliveries has one order for all who claim, so that none waits for another
	// who waits for it. SQLite would prepare it again for each limit.
	dueDeliveries  = selectDeliveries + "endpoint = ? AND due <= ? ORDER BY due, seq LIMIT 8"
	claimDelivery  = "UPDATE deliveries SET due = ? WHERE seq = ? AND due = ?"
	deleteDelivery = "DELETE FROM deliveries WHERE seq = ?"
	nextDue        = "SELECT MIN(due) FROM deliveries WHERE endpoint = ?"
)

// prepareStatements prepares the statements that are run for each event, where that pays. They
// last as long as the database is open.
func (d *database) prepareStatements(ctx context.Context) error {
	if !d.dialect.preparesStatements {
		return nil
	}
	kept := map[string]*sql.Stmt{}
	for _, statement := range []string{
		selectKnown, knownNamed, d.insertKnown, updateKnown, deleteKnown, d.insertEvent, eventsCausedBy,
		insertDelivery, dueDeliveries, claimDelivery, deleteDelivery, nextDue,
	} {
		prepared, err := d.sql.PrepareContext(ctx, d.dialect.bind(statement)) //nolint:sqlclosecheck // it is closed with the database
		if err != nil {
			return fmt.Errorf("prepare statement: %w", err)
		}
		kept[statement] = prepared
	}
	d.kept = kept
	return nil
}

// exec runs a statement in a transaction, or without one if it is nil, and returns
// how many rows it changed.
func (d *database) exec(ctx context.Context, tx *sql.Tx, statement string, args ...any) (int64, error) {
	var result sql.Result
	var err error
	prepared := d.kept[statement]
	switch {
	case prepared != nil && tx != nil:
		result, err = tx.StmtContext(ctx, prepared).ExecContext(ctx, args...) //nolint:sqlclosecheck // it is closed with the transaction
	case prepared != nil:
		result, err = prepared.ExecContext(ctx, args...)
	case tx != nil:
		result, err = tx.ExecContext(ctx, d.dialect.bind(statement), args...)
	default:
		result, err = d.sql.ExecContext(ctx, d.dialect.bind(statement), args...)
	}
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query reads rows.
func (d *database) query(ctx context.Context, statement string, args ...any) (*sql.Rows, error) {
	if prepared := d.kept[statement]; prepared != nil {
		return prepared.QueryContext(ctx, args...)
	}
	return d.sql.QueryContext(ctx, d.dialect.bind(statement), args...)
}

// queryRow reads one row.
func (d *database) queryRow(ctx context.Context, statement string, args ...any) *sql.Row {
	if prepared := d.kept[statement]; prepared != nil {
		return prepared.QueryRowContext(ctx, args...)
	}
	return d.sql.QueryRowContext(ctx, d.dialect.bind(statement), args...)
}
