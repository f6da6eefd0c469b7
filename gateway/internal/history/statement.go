package history

import (
	"context"
	"database/sql"
	"fmt"
)

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

// keep prepares the statements that are run for each event, where that pays. They
// last as long as the database is open.
func (s *Store) keep(ctx context.Context) error {
	if !s.dialect.keeps {
		return nil
	}
	kept := map[string]*sql.Stmt{}
	for _, statement := range []string{
		selectKnown, knownNamed, s.insertKnown, updateKnown, deleteKnown, s.insertEvent, eventsCausedBy,
		insertDelivery, dueDeliveries, claimDelivery, deleteDelivery, nextDue,
	} {
		prepared, err := s.db.PrepareContext(ctx, s.dialect.bind(statement)) //nolint:sqlclosecheck // it is closed with the database
		if err != nil {
			return fmt.Errorf("prepare statement: %w", err)
		}
		kept[statement] = prepared
	}
	s.kept = kept
	return nil
}

// exec runs a statement in a transaction, or without one if it is nil, and returns
// how many rows it changed.
func (s *Store) exec(ctx context.Context, tx *sql.Tx, statement string, args ...any) (int64, error) {
	var result sql.Result
	var err error
	prepared := s.kept[statement]
	switch {
	case prepared != nil && tx != nil:
		result, err = tx.StmtContext(ctx, prepared).ExecContext(ctx, args...) //nolint:sqlclosecheck // it is closed with the transaction
	case prepared != nil:
		result, err = prepared.ExecContext(ctx, args...)
	case tx != nil:
		result, err = tx.ExecContext(ctx, s.dialect.bind(statement), args...)
	default:
		result, err = s.db.ExecContext(ctx, s.dialect.bind(statement), args...)
	}
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query reads rows.
func (s *Store) query(ctx context.Context, statement string, args ...any) (*sql.Rows, error) {
	if prepared := s.kept[statement]; prepared != nil {
		return prepared.QueryContext(ctx, args...)
	}
	return s.db.QueryContext(ctx, s.dialect.bind(statement), args...)
}

// queryRow reads one row.
func (s *Store) queryRow(ctx context.Context, statement string, args ...any) *sql.Row {
	if prepared := s.kept[statement]; prepared != nil {
		return prepared.QueryRowContext(ctx, args...)
	}
	return s.db.QueryRowContext(ctx, s.dialect.bind(statement), args...)
}
