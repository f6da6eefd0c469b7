package history

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/vitistack/stack/gateway/internal/config"
)

// dialect is what differs between the kinds of database.
type dialect struct {
	name   string
	driver string
	goose  goose.Dialect
	// numbered placeholders are $1, $2; the others are all ?.
	numbered bool
	// preparesStatements is whether statements are worth keeping prepared. The other drivers
	// prepare nothing, or keep what they prepare themselves.
	preparesStatements bool
	// ignore is the clause of an INSERT that keeps an existing row, and
	// ignored is put behind it.
	ignore, ignored string
}

var (
	postgres = dialect{name: "postgresql", driver: "pgx", goose: goose.DialectPostgres, numbered: true, ignored: " ON CONFLICT DO NOTHING"}
	mariadb  = dialect{name: "mysql", driver: "mysql", goose: goose.DialectMySQL, ignore: " IGNORE"}
	sqlite   = dialect{name: "sqlite", driver: "sqlite", goose: goose.DialectSQLite3, preparesStatements: true, ignored: " ON CONFLICT DO NOTHING"}
	memory   = dialect{name: "memory", driver: "sqlite", goose: goose.DialectSQLite3, preparesStatements: true, ignored: " ON CONFLICT DO NOTHING"}
)

// MemoryURL is a database that ends with the process.
const MemoryURL = "memory:"

// parseURL finds the dialect of a URL, and what its driver calls the database. An
// empty URL is an SQLite file in the state directory.
func parseURL(raw, stateDir string) (dialect, string, error) {
	scheme, rest, _ := strings.Cut(raw, ":")
	switch {
	case raw == "":
		if err := os.MkdirAll(stateDir, 0o700); err != nil {
			return dialect{}, "", fmt.Errorf("make the directory of state.dir: %w", err)
		}
		return sqlite, sqliteName(filepath.Join(stateDir, "gateway.db")), nil
	case scheme == "postgres" || scheme == "postgresql":
		if _, err := url.Parse(raw); err != nil {
			return dialect{}, "", errors.New("it is no URL: write postgres://user:password@host:5432/database")
		}
		return postgres, raw, nil
	case scheme == "mysql" || scheme == "mariadb":
		dsn, err := mysqlName(raw)
		return mariadb, dsn, err
	case scheme == "sqlite" || scheme == "file":
		path := strings.TrimPrefix(rest, "//")
		if path == "" {
			return dialect{}, "", errors.New("it names no file: write sqlite:///path/to/file.db")
		}
		return sqlite, sqliteName(path), nil
	case raw == MemoryURL:
		return memory, "file:gateway?mode=memory&_pragma=busy_timeout(5000)", nil
	default:
		return dialect{}, "", errors.New("its kind is unknown: write postgres://, mysql:// or sqlite://")
	}
}

func sqliteName(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() +
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
}

// mysqlName turns a URL into what the driver for MySQL expects.
func mysqlName(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" && u.Query().Get("socket") == "" || strings.Trim(u.Path, "/") == "" {
		return "", errors.New("it is no URL: write mysql://user:password@host:3306/database")
	}
	c := mysql.NewConfig()
	c.User = u.User.Username()
	c.Passwd, _ = u.User.Password()
	c.Net, c.Addr, c.DBName = "tcp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306")), strings.Trim(u.Path, "/")
	for _, name := range slices.Sorted(maps.Keys(u.Query())) {
		if name != "tls" && name != "socket" {
			return "", fmt.Errorf("its parameter %q has no effect: write tls=true to encrypt and to verify the certificate, socket=PATH for a socket, and no other", name)
		}
	}
	if socket := u.Query().Get("socket"); socket != "" {
		c.Net, c.Addr = "unix", socket
	}
	c.TLSConfig = u.Query().Get("tls")
	c.ClientFoundRows = true
	c.InterpolateParams = true
	return c.FormatDSN(), nil
}

// pool sets the limits of the pool. SQLite in memory has one connection, since
// each would have a database of its own.
func (d dialect) pool(db *sql.DB, c *config.Database) {
	db.SetMaxOpenConns(c.MaxOpenConns)
	db.SetMaxIdleConns(c.MaxIdleConns)
	db.SetConnMaxLifetime(c.ConnMaxLifetime)
	db.SetConnMaxIdleTime(c.ConnMaxIdleTime)
	if d == memory {
		db.SetMaxOpenConns(1)
		db.SetMaxIdleConns(1)
		db.SetConnMaxLifetime(0)
		db.SetConnMaxIdleTime(0)
	}
}

// bind writes a statement's placeholders as the database has them.
func (d dialect) bind(statement string) string {
	if !d.numbered {
		return statement
	}
	var b strings.Builder
	n := 0
	for _, r := range statement {
		if r != '?' {
			b.WriteRune(r)
			continue
		}
		n++
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
	}
	return b.String()
}

// insertNew returns an INSERT that does not change an existing row.
func (d dialect) insertNew(table, columns string, values int) string {
	return "INSERT" + d.ignore + " INTO " + table + " (" + columns + ") VALUES (?" + strings.Repeat(", ?", values-1) + ")" + d.ignored
}

// hide takes a URL, which may hold a password, out of an error.
func hide(err error, secret string) error {
	if secret == "" {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), secret, "(redacted)"))
}
