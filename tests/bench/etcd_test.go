package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
)

// store is the etcd of an engine, spoken to over its JSON gateway (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/).
type store struct{ client *http.Client }

// entry is one key of etcd with its value.
type entry struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func openStore(e *engine.Engine) store {
	socket := filepath.Join(e.Dir, "etcd.sock")
	return store{&http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}}
}

// list returns the entries whose keys are below all of a folder.
func (s store) list(b *testing.B, folder string) []entry {
	b.Helper()
	var got struct{ Kvs []entry }
	// '0' follows '/' in ASCII.
	s.call(b, "range", map[string]any{"key": []byte(folder + "/"), "range_end": []byte(folder + "0")}, &got)
	return got.Kvs
}

// putAll writes entries, as many in one transaction as etcd accepts.
func (s store) putAll(b *testing.B, entries []entry) {
	b.Helper()
	const (
		mostEntries = 100     // --max-txn-ops is 128
		mostBytes   = 1 << 20 // --max-request-bytes is 1.5 MiB
	)
	for len(entries) > 0 {
		var puts []map[string]entry
		for size := 0; len(puts) < min(len(entries), mostEntries) && size < mostBytes; {
			e := entries[len(puts)]
			puts, size = append(puts, map[string]entry{"requestPut": e}), size+len(e.Value)
		}
		s.call(b, "txn", map[string]any{"success": puts}, nil)
		entries = entries[len(puts):]
	}
}

func (s store) call(b *testing.B, what string, request, answer any) {
	b.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		b.Fatal(err)
	}
	res, err := s.client.Post("http://etcd/v3/kv/"+what, "application/json", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		b.Fatal(fmt.Errorf("etcd answers %s to %s", res.Status, what))
	}
	if answer == nil {
		return
	}
	if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
		b.Fatal(err)
	}
}
