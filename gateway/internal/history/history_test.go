package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/tests/stand/servers"
)

func TestEventsAreKeptOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, stop := open(t, url)
		e := anEvent("e1")
		if w := write(t, s, Record{Events: []Event{e}}); len(w.Events) != 1 {
			t.Errorf("the first write stored %d events", len(w.Events))
		}
		again := e
		again.Type = "another"
		if w := write(t, s, Record{Events: []Event{again}}); len(w.Events) != 0 {
			t.Error("a duplicate was stored")
		}
		got, err := s.Events(t.Context(), Query{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]Event{e}, got, cmpopts.IgnoreFields(Event{}, "Sequence")); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if caused, err := s.CausedBy(t.Context(), "raw-1"); err != nil || len(caused) != 1 {
			t.Errorf("caused by raw-1: %v %v", caused, err)
		}
		if url == MemoryURL {
			return
		}
		baseline := s.Baseline()
		stop()
		if _, err := s.Write(t.Context(), Record{Events: []Event{e}}); !errors.Is(err, ErrNotReady) {
			t.Errorf("a write after the end: %v", err)
		}
		s, _ = open(t, url)
		if _, known, err := s.Find(t.Context(), "e1", "/gateway"); !known || err != nil {
			t.Errorf("the event was lost with the process: %v %v", known, err)
		}
		if !s.Baseline().Equal(baseline) {
			t.Errorf("the start of the history was %s and is now %s", baseline, s.Baseline())
		}
	})
}

// TestTimesThatNoJSONHas reads an event with a time in the year 10000 or before the year 0.
func TestTimesThatNoJSONHas(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		for id, year := range map[string]int{"late": 10_000, "early": -1} {
			e := anEvent(id)
			e.Time = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			write(t, s, Record{Events: []Event{e}})
		}
		got, err := s.Events(t.Context(), Query{Limit: 10})
		if err != nil || len(got) != 2 {
			t.Fatalf("%d events: %v", len(got), err)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	})
}

func TestQueries(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		var all []Event
		for i := range 5 {
			e := anEvent(fmt.Sprintf("e%d", i))
			e.Time = noon.Add(time.Duration(i) * time.Minute)
			e.Name = fmt.Sprintf("m%d", i)
			if i >= 3 {
				e.Type, e.Namespace, e.Cluster = "io.vitistack.network.failed", "team-b", ""
			}
			all = append(all, e)
		}
		write(t, s, Record{Events: all})
		newest, err := s.Events(t.Context(), Query{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		cases := map[string]struct {
			reason string
			query  Query
			want   []string
		}{
			"All":       {reason: "the newest events are first", query: Query{}, want: []string{"e4", "e3", "e2", "e1", "e0"}},
			"Limit":     {reason: "a limit", query: Query{Limit: 2}, want: []string{"e4", "e3"}},
			"Before":    {reason: "the next page", query: Query{Order: Order{After: newest[0].Sequence}}, want: []string{"e3", "e2", "e1", "e0"}},
			"Type":      {reason: "an exact type", query: Query{Types: []string{"infrastructure.machine.created"}}, want: []string{"e2", "e1", "e0"}},
			"Prefix":    {reason: "a type's beginning", query: Query{Types: []string{"io.vitistack.*", "none"}}, want: []string{"e4", "e3"}},
			"Wildcards": {reason: "wildcards of the database are plain text", query: Query{Types: []string{"io%*", "io_vitistack*"}}},
			"Object":    {reason: "one object", query: Query{Namespace: "team-a", Name: "m1"}, want: []string{"e1"}},
			"Cluster":   {reason: "the events of a cluster", query: Query{Cluster: "shop", Namespace: "team-a"}, want: []string{"e2", "e1", "e0"}},
			"Time":      {reason: "since is inclusive and until is exclusive", query: Query{Since: noon.Add(time.Minute), Until: noon.Add(3 * time.Minute)}, want: []string{"e2", "e1"}},
			"Visible":   {reason: "the namespaces of a caller", query: Query{Namespaces: []string{"team-b", "team-c"}}, want: []string{"e4", "e3"}},
			"Narrowed":  {reason: "combined with other filters", query: Query{Types: []string{"io.*", "infrastructure.*"}, Namespaces: []string{"team-a"}, Name: "m2"}, want: []string{"e2"}},
			"Hidden":    {reason: "the namespaces of a request give a caller no access", query: Query{Namespace: "team-a", Namespaces: []string{"team-b"}}},
			"Nothing":   {reason: "a caller without namespaces sees no events", query: Query{Namespaces: []string{}}},
			"Injection": {reason: "a value is not part of the query", query: Query{Name: "' OR '1'='1"}},
		}
		for name, tc := range cases {
			t.Run(name, func(t *testing.T) {
				counted, err := s.Count(t.Context(), tc.query, 100)
				if err != nil {
					t.Fatal(err)
				}
				if tc.query.Limit == 0 {
					if tc.query.After == 0 && counted != len(tc.want) {
						t.Errorf("%s: counted %d", tc.reason, counted)
					}
					tc.query.Limit = 10
				}
				got, err := s.Events(t.Context(), tc.query)
				if err != nil {
					t.Fatal(err)
				}
				var ids []string
				for _, e := range got {
					ids = append(ids, e.ID)
				}
				if diff := cmp.Diff(tc.want, ids); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		}
	})
}

// TestOneRecordsAnObject has concurrent writers record the same object. One of them wins each round,
// and the others get an error.
func TestOneRecordsAnObject(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		for round := range 3 {
			known, err := s.Known(t.Context(), "u1")
			if err != nil {
				t.Fatal(err)
			}
			if known.Version != int64(round) {
				t.Fatalf("round %d finds version %d", round, known.Version)
			}
			known.Object = Object{Kind: "Machine", Namespace: "team-a", Name: "m1"}
			known.Document = json.RawMessage(fmt.Sprintf(`{"round":%d}`, round))
			var won, lost int
			var mu sync.Mutex
			var writers sync.WaitGroup
			for i := range 8 {
				writers.Go(func() {
					w, err := s.Write(t.Context(), Record{Known: &known, Events: []Event{anEvent(fmt.Sprintf("r%d-%d", round, i))}})
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil && len(w.Events) == 1:
						won++
					case errors.Is(err, ErrConflict):
						lost++
					default:
						t.Errorf("writer %d: %v", i, err)
					}
				})
			}
			writers.Wait()
			if won != 1 || lost != 7 {
				t.Errorf("round %d: %d have won and %d have lost", round, won, lost)
			}
		}
		if n, err := s.Count(t.Context(), Query{}, 100); n != 3 || err != nil {
			t.Errorf("%d events were stored for 3 rounds: %v", n, err)
		}
		known, err := s.KnownNamed(t.Context(), Object{Kind: "Machine", Namespace: "team-a", Name: "m1"})
		if err != nil || len(known) != 1 || string(known[0].Document) != `{"round":2}` {
			t.Fatalf("known: %v %v", known, err)
		}
		write(t, s, Record{Known: &known[0], Forget: true})
		if _, err := s.Write(t.Context(), Record{Known: &known[0], Forget: true}); !errors.Is(err, ErrConflict) {
			t.Errorf("a second deletion: %v", err)
		}
	})
}

func TestRetention(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		old, young := anEvent("old"), anEvent("young")
		old.Time, young.Time = noon.Add(-time.Hour), noon
		write(t, s, Record{Events: []Event{old, young}, DeadLetters: []DeadLetter{{ID: "old", Time: old.Time}}})
		if err := s.Expire(t.Context(), noon); err != nil {
			t.Fatal(err)
		}
		events, err := s.Events(t.Context(), Query{Limit: 10})
		if err != nil || len(events) != 1 || events[0].ID != "young" {
			t.Errorf("kept: %v %v", events, err)
		}
		if n, err := s.CountDeadLetters(t.Context(), LetterQuery{}); n != 0 || err != nil {
			t.Errorf("%d dead letters are left: %v", n, err)
		}
	})
}

func TestMigrationsGoBothWays(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		if err := s.migrateDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Events(t.Context(), Query{Limit: 1}); err == nil {
			t.Error("the schema still exists")
		}
		if err := s.migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Events(t.Context(), Query{Limit: 1}); err != nil {
			t.Error(err)
		}
	})
}

// TestNothingIsLostAtTheEnd closes the store while records wait for their batch.
func TestNothingIsLostAtTheEnd(t *testing.T) {
	t.Parallel()
	url := "sqlite://" + filepath.Join(t.TempDir(), "h.db")
	s, stop := open(t, url, func(c *config.Database) { c.FlushInterval = time.Hour })
	const n = 30
	var writers sync.WaitGroup
	for i := range n {
		writers.Go(func() {
			if _, err := s.WriteLater(context.Background(), Record{Events: []Event{anEvent(fmt.Sprint(i))}}); err != nil {
				t.Errorf("write %d: %v", i, err)
			}
		})
	}
	for {
		s.writer.mu.Lock()
		waiting := len(s.writer.pending)
		s.writer.mu.Unlock()
		if waiting == n {
			break
		}
	}
	stop()
	writers.Wait()
	s, _ = open(t, url)
	if got, err := s.Count(t.Context(), Query{}, 100); got != n || err != nil {
		t.Errorf("%d of %d were written: %v", got, n, err)
	}
}

// TestOneBadRecordHarmsNoOther writes a record that the database rejects together with others.
func TestOneBadRecordHarmsNoOther(t *testing.T) {
	t.Parallel()
	s, _ := open(t, servers.Postgres(t), func(c *config.Database) { c.FlushInterval = time.Hour })
	bad := anEvent("bad")
	bad.Data = json.RawMessage("\x00")
	errs := make(chan error, 2)
	go func() { _, err := s.WriteLater(t.Context(), Record{Events: []Event{bad}}); errs <- err }()
	for waiting := 0; waiting == 0; {
		s.writer.mu.Lock()
		waiting = len(s.writer.pending)
		s.writer.mu.Unlock()
	}
	if _, err := s.Write(t.Context(), Record{Events: []Event{anEvent("good")}}); err != nil {
		t.Errorf("the good record: %v", err)
	}
	if err := <-errs; err == nil {
		t.Error("the bad record was written")
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("the bad record counts as a fault of the database: %v", err)
	}
}

// TestDatabaseTakesNoChanges has a database that answers and takes no changes, as one with a full disk. Ping says so until it takes changes again.
func TestDatabaseTakesNoChanges(t *testing.T) {
	t.Parallel()
	s, _ := open(t, "sqlite://"+filepath.Join(t.TempDir(), "h.db"), func(c *config.Database) { c.MaxOpenConns, c.MaxIdleConns = 1, 1 })
	for _, readOnly := range []bool{true, false} {
		if _, err := s.sql.ExecContext(t.Context(), fmt.Sprintf("PRAGMA query_only = %t", readOnly)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(t.Context(), Record{Events: []Event{anEvent("e")}}); (err != nil) != readOnly {
			t.Errorf("read-only is %t, and a write ends with %v", readOnly, err)
		}
		for range 2 {
			if err := s.Ping(t.Context()); (err != nil) != readOnly {
				t.Errorf("read-only is %t, and ping says %v", readOnly, err)
			}
		}
	}
}

// TestPingWrites has Ping write to every kind of database, for the first time and again.
func TestPingWrites(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		for range 2 {
			s.writesFail.Store(true)
			if err := s.Ping(t.Context()); err != nil || s.writesFail.Load() {
				t.Errorf("ping: %v", err)
			}
		}
	})
}

func TestDatabaseComesLater(t *testing.T) {
	t.Parallel()
	c := &config.Database{URL: "postgres://user@127.0.0.1:1/none?sslmode=disable&connect_timeout=1", BatchSize: 1, FlushInterval: time.Second, Retention: time.Hour}
	s, err := Open(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	if _, err := s.Write(t.Context(), Record{Events: []Event{anEvent("e")}}); !errors.Is(err, ErrNotReady) {
		t.Errorf("a write without a database: %v", err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, ErrNotReady) {
		t.Errorf("ping: %v", err)
	}
	cancel()
	<-done
}

func TestURLs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, url, mode string
	}{
		"Postgres":  {reason: "a URL of PostgreSQL", url: "postgres://u:p@h/d", mode: "postgresql"},
		"MySQL":     {reason: "a URL of MySQL", url: "mysql://u:p@h/d?tls=true", mode: "mysql"},
		"SQLite":    {reason: "a file", url: "sqlite:///tmp/x.db", mode: "sqlite"},
		"Default":   {reason: "the default is a file", url: "", mode: "sqlite"},
		"Unknown":   {reason: "other databases are not supported", url: "mongodb://h/d"},
		"MySQLTLS":  {reason: "a parameter without an effect would leave the connection unencrypted", url: "mysql://u:p@h/d?ssl-mode=VERIFY_IDENTITY"},
		"MySQLBad":  {reason: "an unknown kind of TLS", url: "mysql://u:p@h/d?tls=maybe"},
		"NoName":    {reason: "a MySQL URL requires a database", url: "mysql://u:p@h/"},
		"Nonsense":  {reason: "the text is no URL", url: "my database"},
		"EmptyFile": {reason: "a file requires a name", url: "sqlite://"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Open(&config.Database{URL: tc.url, StateDir: t.TempDir(), FlushInterval: time.Second}, slog.New(slog.DiscardHandler))
			if (err == nil) != (tc.mode != "") {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if err == nil && s.Mode() != tc.mode {
				t.Errorf("%s: mode %s", tc.reason, s.Mode())
			}
		})
	}
}

// TestAddressesOfMySQL checks that each kind of host gets the standard port.
func TestAddressesOfMySQL(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"db": "db:3306", "db:3307": "db:3307", "192.0.2.1": "192.0.2.1:3306", "[2001:db8::1]": "[2001:db8::1]:3306", "[2001:db8::1]:3307": "[2001:db8::1]:3307",
	} {
		name, err := mysqlName("mysql://u:p@" + host + "/d")
		if err != nil {
			t.Fatal(err)
		}
		c, err := mysql.ParseDSN(name)
		if err != nil || c.Addr != want {
			t.Errorf("%s: %+v %v, want the address %s", host, c, err, want)
		}
	}
}

// TestTextsThatNoDatabaseHas looks for texts with NUL, and for texts that are not UTF-8. PostgreSQL refuses both.
func TestTextsThatNoDatabaseHas(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		e := anEvent("e1")
		e.Name = "odd\xff\x00"
		write(t, s, Record{Events: []Event{e}})
		for text, want := range map[string]int{"odd\xff\x00": 1, "odd\x00": 0, "\xff": 0} {
			if found, err := s.Events(t.Context(), Query{Name: text, Limit: 10}); err != nil || len(found) != want {
				t.Errorf("the name %q: found %d times, want %d (%v)", text, len(found), want, err)
			}
			for name, q := range map[string]Query{
				"text": {Text: text}, "type": {Types: []string{text}}, "types": {Types: []string{text + "*"}}, "namespaces": {Namespaces: []string{text}},
				"page": {Order: Order{By: "name", After: 1 << 40, AfterValue: "zz" + text}},
			} {
				q.Limit = 10
				if _, err := s.Events(t.Context(), q); err != nil {
					t.Errorf("%s %q: %v", name, text, err)
				}
				if _, err := s.Count(t.Context(), q, 10); err != nil {
					t.Errorf("count by %s %q: %v", name, text, err)
				}
			}
			if _, err := s.DeadLetters(t.Context(), LetterQuery{Text: text, Destination: text, Limit: 10}); err != nil {
				t.Errorf("dead letters with %q: %v", text, err)
			}
		}
	})
}

// TestTextIsFoundInAnyCase looks for texts with letters beyond ASCII, and with characters that JSON escapes.
func TestTextIsFoundInAnyCase(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, url string) {
		s, _ := open(t, url)
		data, err := json.Marshal(map[string]string{"project": "Østlandet R&D <test>", "zone": "Trøndelag"})
		if err != nil {
			t.Fatal(err)
		}
		e := anEvent("e1")
		e.Data = data
		write(t, s, Record{Events: []Event{e}})
		for text, want := range map[string]int{
			"Østlandet": 1, "østlandet": 1, "ØSTLANDET": 1, "TRØNDELAG": 1, "R&D": 1, "r&d <TEST>": 1, `"zone":"trø`: 1, "Vestlandet": 0, "R%D": 0,
		} {
			if found, err := s.Events(t.Context(), Query{Text: text, Limit: 10}); err != nil || len(found) != want {
				t.Errorf("%s: found %d times, want %d (%v)", text, len(found), want, err)
			}
		}
	})
}
