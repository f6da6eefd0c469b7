package history

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/tests/stand/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }

// databases are all kinds of databases, each with a function that creates an empty one.
var databases = map[string]func(testing.TB) string{
	"PostgreSQL": servers.Postgres,
	"MariaDB":    servers.MariaDB,
	"SQLite":     func(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "h.db") },
	"Memory":     func(testing.TB) string { return MemoryURL },
}

// onEach runs a test on every kind of database.
func onEach(t *testing.T, test func(t *testing.T, url string)) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, url(t))
		})
	}
}

// open runs a store until t ends or stop is called.
func open(t testing.TB, url string, change ...func(*config.Database)) (s *Store, stop func()) {
	t.Helper()
	c := &config.Database{
		URL: url, StateDir: t.TempDir(), MaxOpenConns: 5, MaxIdleConns: 2, BatchSize: 100,
		FlushInterval: 20 * time.Millisecond, Retention: 100 * 365 * 24 * time.Hour,
	}
	for _, f := range change {
		f(c)
	}
	s, err := Open(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	select {
	case <-s.Migrated():
	case <-time.After(time.Minute):
		t.Fatalf("the database is not ready: %v", s.Ping(t.Context()))
	}
	return s, stop
}

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func anEvent(id string) Event {
	return Event{
		ID: id, Source: "/gateway", Type: "infrastructure.machine.created", Subject: "/apis/x", Time: noon,
		Object: Object{Kind: "Machine", Namespace: "team-a", Name: "m1"}, UID: "u1", Cluster: "shop", Cause: "raw-1",
		Data: json.RawMessage(`{"name":"m1","zone":"Trøndelag \u0000 🚂"}`),
	}
}

func write(t *testing.T, s *Store, r Record) Written {
	t.Helper()
	w, err := s.Write(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
