package history

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrConflict is returned if another replica has recorded a newer version of an object.
var ErrConflict = errors.New("another replica has recorded a newer version of the object")

// objects is the table of the last record of each object.
type objects struct{ *database }

// Known reads what is recorded of an object by its identifier. Version 0 means
// nothing.
func (o objects) Known(ctx context.Context, id string) (Known, error) {
	if err := o.requireReady(); err != nil {
		return Known{}, err
	}
	k := Known{ID: id}
	var document string
	row := o.queryRow(ctx, selectKnown, id)
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
func (o objects) KnownNamed(ctx context.Context, of Object) ([]Known, error) {
	return o.knownAll(ctx, knownNamed, of.Kind, of.Namespace, of.Name)
}

// KnownOf reads what is recorded of all objects of a kind.
func (o objects) KnownOf(ctx context.Context, kind string) ([]Known, error) {
	return o.knownAll(ctx, knownOf, kind)
}

func (o objects) knownAll(ctx context.Context, statement string, args ...any) (all []Known, err error) {
	if err := o.requireReady(); err != nil {
		return nil, err
	}
	rows, err := o.query(ctx, statement, args...)
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

// replace replaces the record of an object in a transaction, or deletes it. It returns ErrConflict unless the record has the version of k.
func (o objects) replace(ctx context.Context, tx *sql.Tx, k Known, forget bool) error {
	var n int64
	var err error
	switch {
	case forget:
		n, err = o.exec(ctx, tx, deleteKnown, k.ID, k.Version)
	case k.Version == 0:
		n, err = o.exec(ctx, tx, o.insertKnown,
			k.ID, k.Kind, k.Namespace, k.Name, 1, string(k.Document))
	default:
		n, err = o.exec(ctx, tx, updateKnown,
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
