package servers

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

var postgres = &kind{
	name: "postgresql", program: "postgres", also: []string{"initdb"}, debian: "postgresql",
	folders: []string{"/usr/lib/postgresql/*/bin"},
	prepare: func(s *server) error {
		return s.run("initdb", "-D", filepath.Join(s.dir, "data"), "-U", "tester", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
	},
	args: func(s *server) []string {
		return []string{"-D", filepath.Join(s.dir, "data"), "-p", strconv.Itoa(s.port), "-h", "127.0.0.1", "-k", s.dir, "-F"}
	},
	ready: func(ctx context.Context, s *server) error { return ping(ctx, "pgx", s.postgresURL("postgres")) },
}

func (s *server) postgresURL(database string) string {
	return fmt.Sprintf("postgres://tester@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

// Postgres returns the URL of an empty PostgreSQL database for t. It fails t if the Debian package
// postgresql is missing.
func Postgres(t testing.TB) string {
	t.Helper()
	s := postgres.use(t)
	return s.postgresURL(create(t, "pgx", s.postgresURL("postgres")))
}

var mariadb = &kind{
	name: "mariadb", program: "mariadbd", also: []string{"mariadb-install-db"}, debian: "mariadb-server",
	folders: []string{"/usr/sbin"},
	prepare: func(s *server) error {
		return s.run("mariadb-install-db", "--no-defaults", "--datadir="+filepath.Join(s.dir, "data"), "--auth-root-authentication-method=normal", "--skip-test-db")
	},
	args: func(s *server) []string {
		return []string{
			"--no-defaults", "--datadir=" + filepath.Join(s.dir, "data"), "--port=" + strconv.Itoa(s.port), "--bind-address=127.0.0.1",
			"--socket=" + filepath.Join(s.dir, "socket"), "--pid-file=" + filepath.Join(s.dir, "pid"), "--skip-name-resolve",
			"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M",
		}
	},
	ready: func(ctx context.Context, s *server) error { return ping(ctx, "mysql", s.mysqlDSN()) },
}

func (s *server) mysqlDSN() string { return fmt.Sprintf("root@tcp(127.0.0.1:%d)/", s.port) }

// MariaDB returns the URL of an empty MariaDB database for t. It fails t if the Debian package
// mariadb-server is missing.
func MariaDB(t testing.TB) string {
	t.Helper()
	s := mariadb.use(t)
	return fmt.Sprintf("mysql://root@127.0.0.1:%d/%s", s.port, create(t, "mysql", s.mysqlDSN()))
}

// PID returns the process of a running server: postgresql, mariadb or redis.
func PID(t testing.TB, name string) int {
	t.Helper()
	_, s := inUse(t, name)
	return s.cmd.Process.Pid
}

// Kill ends a running server without a warning: postgresql, mariadb or redis. Its data stay.
func Kill(t testing.TB, name string) {
	t.Helper()
	_, s := inUse(t, name)
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Restart starts a server that was killed on the same port and data. It does nothing for one that runs.
func Restart(t testing.TB, name string) {
	t.Helper()
	k, s := inUse(t, name)
	select {
	case <-s.done:
	default:
		return
	}
	var err error
	for range 50 { // the children of a killed server keep its memory for a moment
		if err = k.boot(s); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Fatalf("restart %s: %v", name, err)
}

func inUse(t testing.TB, name string) (*kind, *server) {
	t.Helper()
	for _, k := range all {
		k.mu.Lock()
		running := k.running
		k.mu.Unlock()
		if k.name == name && running != nil {
			return k, running
		}
	}
	t.Fatalf("no test uses %s", name)
	return nil, nil
}

var redis = &kind{
	name: "redis", program: "redis-server", debian: "redis-server",
	args: func(s *server) []string {
		return []string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no", "--databases", "1024"}
	},
	ready: func(ctx context.Context, s *server) error { return dial(ctx, s.port, "PING\r\n", "+PONG") },
}

// Redis returns the URL of an empty Redis database for t. It fails t if the Debian package
// redis-server is missing.
func Redis(t testing.TB) string {
	t.Helper()
	s := redis.use(t)
	return fmt.Sprintf("redis://127.0.0.1:%d/%d", s.port, databases.Add(1)%1024)
}
