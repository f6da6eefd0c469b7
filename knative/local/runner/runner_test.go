package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/knative/local/process"
)

const (
	behaviour = "RUNNER_TEST_BEHAVIOUR" // makes the test binary a function
	deadline  = 20 * time.Second
)

func TestMain(m *testing.M) {
	if os.Getenv(behaviour) != "" {
		serve()
		return
	}
	os.Exit(m.Run())
}

// serve is the function under test: / answers the process ID, /die ends the process without an answer, /hold answers once the file in the query exists,
// /take answers as to an event.
func serve() {
	if os.Getenv(behaviour) == "broken" {
		fmt.Println("cannot start: no such thing")
		os.Exit(3)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/take", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	mux.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { os.Exit(4) })
	mux.HandleFunc("/hold", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := os.Stat(r.URL.Query().Get("until")); err == nil {
				break
			}
			select {
			case <-r.Context().Done():
			case <-time.After(time.Millisecond):
			}
		}
		_, _ = fmt.Fprint(w, os.Getpid())
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, os.Getpid()) })
	fmt.Println(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), mux))
}

// newFunction returns a function and its URL.
func newFunction(t testing.TB, kind string, change func(*Spec)) (*Function, string) {
	t.Helper()
	log, err := process.OpenLog(filepath.Join(t.TempDir(), "function.log"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec{
		Name: "function", ReadyPath: "/readyz", Processes: 1, Idle: time.Hour, Grace: deadline, Timeout: deadline,
		Command: func(_ context.Context, port int) (process.Command, error) {
			return process.Command{Path: os.Args[0], Env: []string{behaviour + "=" + kind, "PORT=" + strconv.Itoa(port)}}, nil
		},
	}
	if change != nil {
		change(&spec)
	}
	f := New(process.NewSpawner(), log, spec)
	server := httptest.NewServer(f)
	t.Cleanup(func() {
		f.Close()
		server.Close()
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return f, server.URL
}

type answer struct {
	code int
	body string
}

func get(t *testing.T, url string) answer {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return answer{response.StatusCode, string(body)}
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", deadline, what)
		}
		<-time.After(time.Millisecond)
	}
}

func states(f *Function) []string {
	states := []string{}
	for _, s := range f.Statuses() {
		states = append(states, s.State)
	}
	return states
}

func TestStartsOnDemandAndStopsWhenIdle(t *testing.T) {
	t.Parallel()
	f, url := newFunction(t, "well", func(s *Spec) { s.Idle = 50 * time.Millisecond })
	if diff := cmp.Diff([]string{process.StateStopped}, states(f)); diff != "" {
		t.Fatalf("a process runs before the first request (-want +got):\n%s", diff)
	}
	first := get(t, url)
	if first.code != http.StatusOK {
		t.Fatalf("first request: got %+v", first)
	}
	eventually(t, "the idle process is stopped", func() bool { return cmp.Equal(states(f), []string{process.StateStopped}) })
	pid, err := strconv.Atoi(first.body)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d still exists: %v", pid, err)
	}
	if second := get(t, url); second.code != http.StatusOK || second.body == first.body {
		t.Errorf("a request after the stop: got %+v, want another process than %s", second, first.body)
	}
	if s := f.Statuses()[0]; s.Starts != 2 || s.LastStartMillis <= 0 || s.LastError != "" {
		t.Errorf("status after two starts: %+v", s)
	}
}

func TestOneProcessServesAll(t *testing.T) {
	t.Parallel()
	_, url := newFunction(t, "well", nil)
	var mu sync.Mutex
	pids := map[string]bool{}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			a := get(t, url)
			mu.Lock()
			defer mu.Unlock()
			pids[a.body] = a.code == http.StatusOK
		})
	}
	wg.Wait()
	if len(pids) != 1 {
		t.Errorf("20 requests were sent to the processes %v, want one", pids)
	}
}

func TestConcurrencyStartsMoreProcesses(t *testing.T) {
	t.Parallel()
	f, url := newFunction(t, "well", func(s *Spec) { s.Concurrency, s.Processes = 1, 2 })
	file := filepath.Join(t.TempDir(), "go")
	answers := make(chan answer, 3)
	for range cap(answers) {
		go func() { answers <- get(t, url+"/hold?until="+file) }()
	}
	eventually(t, "two processes are busy", func() bool {
		busy := 0
		for _, s := range f.Statuses() {
			busy += s.InFlight
		}
		return busy == 2 && len(f.Statuses()) == 2
	})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pids := map[string]int{}
	for range cap(answers) {
		pids[(<-answers).body]++
	}
	if len(pids) != 2 {
		t.Errorf("three requests with two processes of one request each were sent to %v", pids)
	}
}

func TestDyingProcess(t *testing.T) {
	t.Parallel()
	f, url := newFunction(t, "well", nil)
	if a := get(t, url+"/die"); a.code != http.StatusServiceUnavailable {
		t.Errorf("a request to a dying process: got %+v, want 503", a)
	}
	eventually(t, "the death is noticed", func() bool { return cmp.Equal(states(f), []string{process.StateStopped}) })
	before := get(t, url)
	if before.code != http.StatusOK {
		t.Fatalf("the request after a death: got %+v", before)
	}
	if err := f.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the killed process is gone", func() bool { return cmp.Equal(states(f), []string{process.StateStopped}) })
	if after := get(t, url); after.code != http.StatusOK || after.body == before.body {
		t.Errorf("the request after kill -9: got %+v, want another process than %s", after, before.body)
	}
}

func TestCrashLoopBacksOff(t *testing.T) {
	t.Parallel()
	f, url := newFunction(t, "broken", nil)
	var answers []int
	eventually(t, "a start is delayed", func() bool {
		answers = append(answers, get(t, url).code)
		f.mu.Lock()
		defer f.mu.Unlock()
		return time.Until(f.notBefore) > firstBackoff
	})
	for i, code := range answers {
		if code != http.StatusServiceUnavailable {
			t.Errorf("answer %d is %d, want 503", i, code)
		}
	}
	starts := f.Statuses()[0].Starts
	if get(t, url); f.Statuses()[0].Starts != starts {
		t.Error("a process was started during the delay")
	}
	if tail := f.log.Tail(1); tail != "cannot start: no such thing" {
		t.Errorf("last line of the log is %q", tail)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	_, url := newFunction(t, "well", func(s *Spec) { s.Timeout = 500 * time.Millisecond })
	eventually(t, "a quick request is in time once the process runs", func() bool { return get(t, url).code == http.StatusOK })
	if a := get(t, url+"/hold?until=never"); a.code != http.StatusGatewayTimeout {
		t.Errorf("a slow request: got %+v, want 504", a)
	}
}

func TestRetire(t *testing.T) {
	t.Parallel()
	f, url := newFunction(t, "well", nil)
	file := filepath.Join(t.TempDir(), "go")
	held := make(chan answer, 1)
	go func() { held <- get(t, url+"/hold?until="+file) }()
	eventually(t, "the request is in flight", func() bool { return f.Statuses()[0].InFlight == 1 })
	f.Retire()
	next := get(t, url)
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old := <-held
	if old.code != http.StatusOK || next.code != http.StatusOK || old.body == next.body {
		t.Errorf("got %+v before and %+v after, want the request kept and another process for the next", old, next)
	}
	eventually(t, "the old process is stopped", func() bool { return len(f.Statuses()) == 1 })
}

func TestCommandFails(t *testing.T) {
	t.Parallel()
	_, url := newFunction(t, "well", func(s *Spec) {
		s.Command = func(context.Context, int) (process.Command, error) {
			return process.Command{}, errors.New("no configuration")
		}
	})
	eventually(t, "the status has the reason", func() bool {
		a := get(t, url)
		return a.code == http.StatusServiceUnavailable && strings.Contains(a.body, "no configuration")
	})
}
