package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/knative/local/process"
)

const deadline = 4 * time.Minute

var widgets = schema.GroupVersionResource{Group: "test.vitistack.io", Version: "v1", Resource: "widgets"}

// built is where programsUnderTest writes the programs.
var built string

// programsUnderTest builds the engine's program and the function of the test manifests once.
var programsUnderTest = sync.OnceValue(func() (err error) {
	if built, err = os.MkdirTemp("", "viti-local-test-"); err != nil {
		return err
	}
	for _, build := range [][]string{
		{"../build.sh", filepath.Join(built, "viti-local")},
		{"go", "build", "-o", filepath.Join(built, "bin", "function"), "./testdata/function"},
	} {
		if out, err := exec.Command(build[0], build[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", build, err, out)
		}
	}
	return nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// output is the output of the engine.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// env is an engine in the test's process, with its components in processes of their own.
type env struct {
	t       *testing.T
	options Options
	out     *output
	summary Summary
	cluster *cluster
	stop    func() error
}

// options returns the parsed options of the arguments, for the test manifests.
func testOptions(t *testing.T, args ...string) (Options, *output) {
	t.Helper()
	if err := programsUnderTest(); err != nil {
		t.Fatal(err)
	}
	out := &output{}
	o, err := ParseOptions(append([]string{"--root=testdata/root", "--state=" + t.TempDir(), "--bin=" + filepath.Join(built, "bin"), "--gateway-port=0"}, args...), out)
	if err != nil {
		t.Fatal(err)
	}
	o.Self = filepath.Join(built, "viti-local")
	return o, out
}

// start runs an engine until the test ends, or stop is called.
func startRig(t *testing.T, o Options, out *output) *env {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, o) }()
	r := &env{t: t, options: o, out: out, stop: sync.OnceValue(func() error {
		cancel()
		return <-done
	})}
	t.Cleanup(func() {
		_ = r.stop()
		if t.Failed() {
			t.Logf("the engine printed:\n%s", out)
			r.logTails()
		}
	})
	r.eventually("engine.json appears", func() bool {
		select {
		case err := <-done:
			done <- err
			t.Fatalf("the engine ended: %v\n%s", err, out)
		default:
		}
		text, err := os.ReadFile(filepath.Join(o.State, "engine.json"))
		return err == nil && json.Unmarshal(text, &r.summary) == nil
	})
	var err error
	if r.cluster, err = newCluster(r.summary.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *env) logTails() {
	files, _ := filepath.Glob(filepath.Join(r.options.State, "logs", "*.log"))
	for _, file := range files {
		if filepath.Base(file) == "audit.log" {
			continue
		}
		if text, err := os.ReadFile(file); err == nil {
			r.t.Logf("%s:\n%s", file, text[max(0, len(text)-3000):])
		}
	}
}

func (r *env) eventually(what string, holds func() bool) {
	r.t.Helper()
	for end := time.Now().Add(deadline); !holds(); {
		if time.Now().After(end) {
			r.t.Fatalf("not within %s: %s", deadline, what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// report returns the report of the admin endpoint.
func (r *env) report() report {
	r.t.Helper()
	response, err := http.Get(r.summary.Admin)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer report
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		r.t.Fatal(err)
	}
	return answer
}

func (r *env) process(name string) process.Status {
	r.t.Helper()
	for _, status := range r.report().Processes {
		if status.Name == name {
			return status
		}
	}
	r.t.Fatalf("no process is called %s", name)
	return process.Status{}
}

func (r *env) post(path string, want int) {
	r.t.Helper()
	response, err := http.Post(strings.TrimSuffix(r.summary.Admin, "/")+path, "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != want {
		r.t.Fatalf("POST %s: got %d, want %d", path, response.StatusCode, want)
	}
}

// line is the function's record of an event.
type line struct {
	Type, Subject, Path, Data, User, ListSecrets string
	Env                                          map[string]string
}

// records returns the records of a program.
func (r *env) records(program string) []line {
	r.t.Helper()
	file, err := os.Open(filepath.Join(r.options.State, "volumes", program, "data", "record.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var lines []line
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var l line
		if json.Unmarshal(scanner.Bytes(), &l) == nil { // the last line may be incomplete
			lines = append(lines, l)
		}
	}
	return lines
}

// recorded returns the first recorded event of a type about a widget.
func (r *env) recorded(program, kind, widget string) (line, bool) {
	for _, l := range r.records(program) {
		if l.Type == kind && strings.HasSuffix(l.Subject, "/"+widget) {
			return l, true
		}
	}
	return line{}, false
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "test.vitistack.io/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec":     map[string]any{"color": "red"},
	}}
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
