package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const deadline = 20 * time.Second

// role makes the test binary another program: "parent" starts a child with a Spawner and prints its
// process ID.
const role = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) == "parent" {
		child, err := NewSpawner().Start(shell("exec sleep 1000"), os.Stdout)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(child.PID())
		<-child.Done()
	}
	os.Exit(m.Run())
}

func shell(script string) Command {
	return Command{Path: "/bin/sh", Args: []string{"-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", deadline, what)
		}
		<-time.After(time.Millisecond)
	}
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// safeBuffer is a bytes.Buffer for concurrent use.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(text)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestChildDiesWithItsParent(t *testing.T) {
	t.Parallel()
	out := &safeBuffer{}
	parent, err := NewSpawner().Start(Command{Path: os.Args[0], Env: []string{role + "=parent"}}, out)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child's process id is printed", func() bool { return strings.Contains(out.String(), "\n") })
	child, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(parent.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-parent.Done()
	eventually(t, "the child is gone", func() bool { return gone(child) })
}

func TestGrandchildDiesWithTheChild(t *testing.T) {
	t.Parallel()
	out := &safeBuffer{}
	child, err := NewSpawner().Start(shell("sleep 1000 >/dev/null 2>&1 & echo $!; wait"), out)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the grandchild's process id is printed", func() bool { return strings.Contains(out.String(), "\n") })
	grandchild, err := strconv.Atoi(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	child.Stop(deadline)
	eventually(t, "the grandchild is gone", func() bool { return gone(grandchild) })
}

func TestStop(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		script string
		grace  time.Duration
		want   string
	}{
		"Handled": {reason: "a process may end in its own way", script: "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done", grace: deadline, want: "exit status 7"},
		"Ignored": {reason: "a process that ignores the signal is killed", script: "trap '' TERM; echo up; while :; do sleep 0.01; done", grace: 50 * time.Millisecond, want: "signal: killed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := &safeBuffer{}
			p, err := NewSpawner().Start(shell(tc.script), out)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the process is up", func() bool { return strings.Contains(out.String(), "up") })
			p.Stop(tc.grace)
			if diff := cmp.Diff(tc.want, p.Err().Error()); diff != "" {
				t.Errorf("%s: end (-want +got):\n%s", tc.reason, diff)
			}
			if err := p.Signal(syscall.SIGTERM); err != nil {
				t.Errorf("a signal to a process that has ended: %v", err)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	if _, err := NewSpawner().Start(Command{Path: "/nonexistent"}, os.Stderr); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want an error that the program does not exist", err)
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "logs", "a.log")
	log, err := OpenLog(path, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"first line\n", "second\n", "third line\n", "fourth\n"} {
		if _, err := log.Write([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if diff := cmp.Diff([]string{"first line\nsecond\n", "third line\nfourth\n"}, []string{read(path + ".1"), read(path)}); diff != "" {
		t.Errorf("the old file and the new (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("fourth", log.Tail(1)); diff != "" {
		t.Errorf("tail (-want +got):\n%s", diff)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OpenLog(path, 20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Write([]byte("fifth\n")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"third line\nfourth\n", "fifth\n"}, []string{read(path + ".1"), read(path)}); diff != "" {
		t.Errorf("a reopened log includes its earlier content in its size (-want +got):\n%s", diff)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// newService runs a service until the test ends.
func newService(t *testing.T, spec Spec) *Service {
	t.Helper()
	log, err := OpenLog(filepath.Join(t.TempDir(), "service.log"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	spec.Name, spec.Kind, spec.Grace = "service", "test", deadline
	s := NewService(NewSpawner(), log, spec)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if status := s.Status(); status.State != StateStopped || status.PID != 0 {
			t.Errorf("after its end: %+v", status)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func always(command Command) func(context.Context) (Command, error) {
	return func(context.Context) (Command, error) { return command, nil }
}

func TestServiceIsStartedAgain(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 10)
	s := newService(t, Spec{Command: always(shell("exec sleep 1000")), Ended: func(err error) { ended <- err }})
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := s.Status()
	if first.State != StateReady || first.Starts != 1 || first.PID == 0 {
		t.Fatalf("after the start: %+v", first)
	}
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("signal: killed", (<-ended).Error()); diff != "" {
		t.Errorf("the end (-want +got):\n%s", diff)
	}
	eventually(t, "the service is ready again", func() bool {
		now := s.Status()
		return now.State == StateReady && now.Starts == 2 && now.PID != first.PID
	})
}

func TestServiceThatFailsTellsItsLastLines(t *testing.T) {
	t.Parallel()
	s := newService(t, Spec{
		Command: always(shell("echo no such thing; exit 3")),
		Ready:   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	})
	err := s.Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("got %v", err)
	}
	eventually(t, "it is restarted", func() bool { return s.Status().Starts > 1 })
}

func TestServiceWithoutACommandTellsWhy(t *testing.T) {
	t.Parallel()
	s := newService(t, Spec{Command: func(context.Context) (Command, error) { return Command{}, errors.New("no configuration") }})
	if err := s.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "no configuration") {
		t.Errorf("got %v", err)
	}
	if err := s.Signal(syscall.SIGTERM); err == nil {
		t.Error("a signal to a service without a process is no error")
	}
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	s := newService(t, Spec{
		Command: always(shell("exec sleep 1000")),
		Ready:   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	})
	cause := errors.New("patience is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, cause)
	defer cancel()
	if err := s.Wait(ctx); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}
