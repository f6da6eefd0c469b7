package history

import (
	"database/sql"
	"log/slog"
	"strings"
	"testing"

	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/tests/stand/servers"
)

// TestInterruptedMigration ends a migration of MySQL, which has no transactions for definitions, after each of its statements. The next
// start has to complete it.
func TestInterruptedMigration(t *testing.T) {
	t.Parallel()
	content, err := migrations.ReadFile("migrations/mysql/00001_history.sql")
	if err != nil {
		t.Fatal(err)
	}
	up, _, _ := strings.Cut(string(content), "-- +goose Down")
	statements := strings.Split(strings.TrimSpace(up), ";\n")
	if len(statements) < 5 {
		t.Fatalf("the migration has %d statements", len(statements))
	}
	for n := range statements {
		url := servers.MariaDB(t)
		name, err := mysqlName(url)
		if err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("mysql", name)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range statements[:n] {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Open(&config.Database{URL: url, MaxOpenConns: 2}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.prepare(t.Context()); err != nil {
			t.Errorf("after %d of %d statements: %v", n, len(statements), err)
		}
		if err := s.sql.Close(); err != nil {
			t.Error(err)
		}
	}
}
