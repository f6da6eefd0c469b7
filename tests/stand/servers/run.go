// Package servers runs private PostgreSQL, MariaDB and Redis servers for
// tests, out of Debian's packages.
//
// A server is shared by all tests of a process that use it at the same time, and
// each test gets a database of its own. A package with many tests says so in
// TestMain, so that a server is started once:
//
//	func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
package servers

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/vitistack/stack/tests/stand/port"
)

// startTimeout bounds the time until a server accepts connections.
const startTimeout = 2 * time.Minute

// kind is a kind of server.
type kind struct {
	name string
	// program and also are searched in PATH and folders. debian is the package that contains them.
	program, debian string
	also            []string
	folders         []string
	// prepare creates the data directory. args are the server's arguments.
	prepare func(s *server) error
	args    func(s *server) []string
	// ready reports whether the server accepts connections.
	ready func(ctx context.Context, s *server) error

	mu      sync.Mutex
	running *server
	users   int
}

// server is a running server.
type server struct {
	dir   string
	port  int
	kept  *port.Port
	tools map[string]string
	cmd   *exec.Cmd
	done  chan struct{}
}

var all = []*kind{postgres, mariadb, redis}

// Run runs the tests of m, for example a *testing.M, and keeps the servers that they start until all
// have ended. It returns the exit code.
func Run(m interface{ Run() int }) int {
	for _, k := range all {
		k.mu.Lock()
		k.users++
		k.mu.Unlock()
	}
	defer func() {
		for _, k := range all {
			k.release()
		}
	}()
	return m.Run()
}

// use returns the shared server, and starts it if no test uses one yet.
func (k *kind) use(t testing.TB) *server {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running == nil {
		s, err := k.start()
		if err != nil {
			t.Fatalf("start %s: %v", k.name, err)
		}
		k.running = s
	}
	k.users++
	t.Cleanup(k.release)
	return k.running
}

func (k *kind) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.users--
	if k.users == 0 && k.running != nil {
		k.running.stop()
		k.running = nil
	}
}

// start starts a server in a directory of its own.
func (k *kind) start() (*server, error) {
	s := &server{tools: map[string]string{}}
	for _, program := range append([]string{k.program}, k.also...) {
		path, err := k.find(program)
		if err != nil {
			return nil, err
		}
		s.tools[program] = path
	}
	dir, err := os.MkdirTemp("", "viti-"+k.name+"-")
	if err != nil {
		return nil, err
	}
	s.dir = dir
	if err := own(dir); err != nil {
		return nil, err
	}
	if k.prepare != nil {
		if err := k.prepare(s); err != nil {
			_ = os.RemoveAll(dir)
			return nil, err
		}
	}
	if err := k.launch(s); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

func (k *kind) find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	for _, pattern := range k.folders {
		found, _ := filepath.Glob(filepath.Join(pattern, program))
		slices.Sort(found)
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s is not installed: run apt-get install %s", program, k.debian)
}

func (k *kind) launch(s *server) error {
	kept, err := port.Keep(0)
	if err != nil {
		return err
	}
	s.kept, s.port = kept, kept.Number
	if err := k.boot(s); err != nil {
		kept.Close()
		return err
	}
	return nil
}

// boot starts the process of a server on its port and its data.
func (k *kind) boot(s *server) error {
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	s.cmd = exec.Command(s.tools[k.program], k.args(s)...)
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.Dir = log, log, s.dir
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: unprivileged()}
	s.done = make(chan struct{})
	started := make(chan error, 1)
	go func() {
		// The kernel signals the child when the thread that started it ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(s.done)
		defer func() { _ = log.Close() }()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			_ = s.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	if err := k.await(s); err != nil {
		_ = s.cmd.Process.Kill()
		<-s.done
		return err
	}
	return nil
}

// await waits until the server accepts connections.
func (k *kind) await(s *server) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := k.ready(ctx, s)
		if err == nil {
			return nil
		}
		select {
		case <-s.done:
			tail, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("%s has ended:\n%s", k.program, tail[max(0, len(tail)-2000):])
		case <-ctx.Done():
			return fmt.Errorf("%s does not take connections: %w", k.program, err)
		case <-tick.C:
		}
	}
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	<-s.done
	s.kept.Close()
	_ = os.RemoveAll(s.dir)
}

func (s *server) run(tool string, args ...string) error {
	cmd := exec.Command(s.tools[tool], args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: unprivileged()}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", tool, err, out)
	}
	return nil
}

// unprivilegedID is the user of the servers if the tests run as root, because the servers reject root.
const unprivilegedID = 65534

func unprivileged() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: unprivilegedID, Gid: unprivilegedID}
}

func own(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	return os.Chown(dir, unprivilegedID, unprivilegedID)
}

var databases atomic.Int64

// create creates a database for a test, and drops it at the end of the test.
func create(t testing.TB, driver, dsn string) string {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	name := "t" + strconv.FormatInt(databases.Add(1), 10)
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		force := ""
		if driver == "pgx" {
			force = " WITH (FORCE)"
		}
		if _, err := db.Exec("DROP DATABASE " + name + force); err != nil {
			t.Errorf("drop database: %v", err)
		}
		_ = db.Close()
	})
	return name
}

func ping(ctx context.Context, driver, dsn string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return db.PingContext(ctx)
}

func dial(ctx context.Context, port int, send, expect string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(send)); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err != nil || !strings.HasPrefix(string(answer[:n]), expect) {
		return fmt.Errorf("unexpected answer %q: %w", answer[:n], err)
	}
	return nil
}
