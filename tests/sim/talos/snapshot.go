package talos

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// A snapshot is the file that etcd writes: a bbolt database with the keys by revision, followed by its
// SHA-256.

var errSnapshotHash = errors.New("expected sha256 does not match the snapshot: it is damaged or cut off")

// The fields of etcd's mvccpb.KeyValue.
const (
	fieldKey, fieldCreate, fieldMod, fieldVersion, fieldValue = 1, 2, 3, 4, 5
)

// writeSnapshot encodes objects as an etcd snapshot. dir is for a temporary file.
func writeSnapshot(dir string, items []workload.Item) ([]byte, error) {
	file, err := os.CreateTemp(dir, ".snapshot-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	if err := file.Close(); err != nil {
		return nil, err
	}
	db, err := bolt.Open(file.Name(), 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true})
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bolt.Tx) error { return fillSnapshot(tx, items) })
	if err := errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	return append(data, sum[:]...), nil
}

func fillSnapshot(tx *bolt.Tx, items []workload.Item) error {
	for _, name := range []string{"alarm", "auth", "cluster", "key", "lease", "members", "members_removed", "meta"} {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	if err := tx.Bucket([]byte("meta")).Put([]byte("storageVersion"), []byte("3.6.0")); err != nil {
		return err
	}
	keys := tx.Bucket([]byte("key"))
	for _, item := range items {
		at := make([]byte, 17) // main revision, "_", sub revision
		binary.BigEndian.PutUint64(at, item.Revision)
		at[8] = '_'
		var v []byte
		v = protowire.AppendBytes(protowire.AppendTag(v, fieldKey, protowire.BytesType), []byte(item.Key))
		v = protowire.AppendVarint(protowire.AppendTag(v, fieldCreate, protowire.VarintType), item.Revision)
		v = protowire.AppendVarint(protowire.AppendTag(v, fieldMod, protowire.VarintType), item.Revision)
		v = protowire.AppendVarint(protowire.AppendTag(v, fieldVersion, protowire.VarintType), 1)
		v = protowire.AppendBytes(protowire.AppendTag(v, fieldValue, protowire.BytesType), item.Value)
		if err := keys.Put(at, v); err != nil {
			return err
		}
	}
	return nil
}

// readSnapshot decodes a snapshot. It checks the hash unless that is skipped, as for a copy of a data
// directory, which has none.
func readSnapshot(dir string, data []byte, skipHash bool) ([]workload.Item, error) {
	switch len(data) % 512 {
	case sha256.Size:
		body := data[:len(data)-sha256.Size]
		if sum := sha256.Sum256(body); !skipHash && !bytes.Equal(sum[:], data[len(body):]) {
			return nil, errSnapshotHash
		}
		data = body
	case 0:
		if !skipHash {
			return nil, errors.New("snapshot missing hash but --skip-hash-check=false")
		}
	default:
		return nil, errSnapshotHash
	}
	file, err := os.CreateTemp(dir, ".snapshot-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(data)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	db, err := bolt.Open(file.Name(), 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("open snapshot: %w", err)
	}
	var items []workload.Item
	err = db.View(func(tx *bolt.Tx) error {
		keys := tx.Bucket([]byte("key"))
		if keys == nil {
			return errors.New("the snapshot has no keys")
		}
		return keys.ForEach(func(at, v []byte) error {
			item, err := decodeKeyValue(v)
			item.Revision = binary.BigEndian.Uint64(at)
			items = append(items, item)
			return err
		})
	})
	return items, errors.Join(err, db.Close())
}

func decodeKeyValue(v []byte) (workload.Item, error) {
	var item workload.Item
	for len(v) > 0 {
		number, kind, n := protowire.ConsumeTag(v)
		if n < 0 {
			return item, protowire.ParseError(n)
		}
		v = v[n:]
		if kind == protowire.BytesType {
			field, n := protowire.ConsumeBytes(v)
			if n < 0 {
				return item, protowire.ParseError(n)
			}
			switch number {
			case fieldKey:
				item.Key = string(field)
			case fieldValue:
				item.Value = bytes.Clone(field)
			}
			v = v[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, v); n < 0 {
			return item, protowire.ParseError(n)
		}
		v = v[n:]
	}
	return item, nil
}
