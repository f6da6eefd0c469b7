// Package engine runs the local engine for tests: the real API server, the real
// event source, the functions' own binaries, and simulated hypervisors and nodes.
package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/tests/sim/loopback"
	"github.com/vitistack/stack/tests/stand/process"
)

// startTimeout and stopTimeout are generous: several engines share a machine.
const (
	startTimeout = 3 * time.Minute
	stopTimeout  = 30 * time.Second
)

// Engine is a running engine with state of its own.
type Engine struct {
	// Dir keeps its state: kubeconfig, logs, results.
	Dir    string
	Client dynamic.Interface

	t       testing.TB
	flags   []string
	network *loopback.Range
	process *process.Process
	summary struct {
		Admin, Kubeconfig, APIServer, Ingress, Gateway string
	}
}

// Start builds what has changed, starts an engine with more flags of viti-local
// up, and waits until it is ready. It ends with t.
func Start(t testing.TB, flags ...string) *Engine {
	t.Helper()
	return StartIn(t, t.TempDir(), flags...)
}

// StartIn is Start with a folder for the state, for those who have to know it before.
func StartIn(t testing.TB, dir string, flags ...string) *Engine {
	t.Helper()
	Build(t)
	network, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Dir: dir, t: t, flags: flags, network: network}
	t.Cleanup(func() {
		e.Stop()
		_ = network.Close()
		if t.Failed() {
			e.tell()
		}
	})
	e.Run()
	return e
}

var building = sync.OnceValue(func() error {
	command := exec.Command("make", "--silent", "build")
	command.Dir = Root()
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("make build: %w\n%s", err, out)
	}
	return nil
})

// Build builds what has changed of the programs that the engine runs.
func Build(t testing.TB) {
	t.Helper()
	if err := building(); err != nil {
		t.Fatal(err)
	}
}

// Root is the root of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Bin is the folder of the programs that this checkout is built to.
func Bin(t testing.TB) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(Root())
	if err != nil {
		t.Fatal(err)
	}
	name := strings.ReplaceAll(root, "/", "_")
	if Race() {
		name += "-race"
	}
	return filepath.Join(filepath.Dir(Local(t)), name)
}

// Local is the binary of the engine, which also is etcd, kube-apiserver and kubectl.
func Local(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "vitistack", "bin", "viti-local")
}

// Run starts the engine again after Stop or Kill, on the same state.
func (e *Engine) Run() {
	e.t.Helper()
	bin, root := Bin(e.t), Root()
	args := append([]string{
		"up", "--root", root, "--state", e.Dir, "--bin", bin, "--gateway-port", "0",
		"--crds", filepath.Join(root, "tests/sim/kubevirt/crds"),
		"--process", "sim=" + filepath.Join(bin, "sim") + " --state " + filepath.Join(e.Dir, "sim"),
		"--config", "AUTH_TOKENREVIEW=true", "--config", "RESULTS_PATH=" + e.Results(), "--config", "BACKUP_PATH=" + filepath.Join(e.Dir, "backups"),
		"--apply", filepath.Join(root, "apis/examples/machineprovider-kubevirt.yaml"), "--apply", filepath.Join(root, "apis/examples/networkpool-tour.yaml"),
	}, e.flags...)
	if auditFolder() != "" && !slices.Contains(args, "--audit") {
		args = append(args, "--audit")
	}
	var err error
	if e.process, err = process.Start(exec.Command(Local(e.t), args...), filepath.Join(e.Dir, "engine.out")); err != nil {
		e.t.Fatal(err)
	}
	e.awaitReady()
}

func (e *Engine) awaitReady() {
	e.t.Helper()
	deadline := time.After(startTimeout)
	for {
		select {
		case <-e.process.Done():
			e.t.Fatal(e.process.Ended())
		case <-deadline:
			e.t.Fatalf("the engine is not ready after %s:\n%s", startTimeout, e.output())
		case <-time.After(50 * time.Millisecond):
		}
		doc, err := os.ReadFile(filepath.Join(e.Dir, "engine.json"))
		if err != nil {
			continue
		}
		if err := json.Unmarshal(doc, &e.summary); err != nil {
			e.t.Fatal(err)
		}
		break
	}
	config, err := clientcmd.BuildConfigFromFlags("", e.summary.Kubeconfig)
	if err != nil {
		e.t.Fatal(err)
	}
	config.QPS = -1
	if e.Client, err = dynamic.NewForConfig(config); err != nil {
		e.t.Fatal(err)
	}
}

// Stop ends the engine as Ctrl-C does. Its state stays.
func (e *Engine) Stop() { e.end(syscall.SIGTERM) }

// Kill ends the engine and all its processes at once, with kill -9.
func (e *Engine) Kill() { e.end(syscall.SIGKILL) }

func (e *Engine) end(signal syscall.Signal) {
	e.t.Helper()
	if e.process == nil {
		return
	}
	_ = e.process.Signal(signal)
	select {
	case <-e.process.Done():
	case <-time.After(stopTimeout):
		e.process.Kill()
		e.t.Errorf("the engine did not stop within %s of %s:\n%s", stopTimeout, signal, e.output())
	}
	e.process = nil
	e.noteUsage()
	e.noRaces()
	_ = os.Remove(filepath.Join(e.Dir, "engine.json"))
}

// Results is the folder that keeps what is generated for clusters.
func (e *Engine) Results() string { return filepath.Join(e.Dir, "results") }

// PID is the number of the engine's own process.
func (e *Engine) PID() int { return e.process.PID() }

// Gateway is the URL of the gateway.
func (e *Engine) Gateway() string { return e.summary.Gateway }

// Ask gets what the gateway has at a path. Everything but 200 is an error.
func (e *Engine) Ask(path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.Gateway()+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s %s", path, res.Status, body)
	}
	return body, err
}

// Ingress is the URL at which the broker takes events.
func (e *Engine) Ingress() string { return e.summary.Ingress }

// Send gives an event to the broker.
func (e *Engine) Send(in event.Event) {
	e.t.Helper()
	req, err := cehttp.NewHTTPRequestFromEvent(e.t.Context(), e.Ingress(), in)
	if err != nil {
		e.t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusAccepted {
		e.t.Fatalf("send event %s: %s", in.ID(), res.Status)
	}
}

// Kubeconfig is the file that kubectl takes.
func (e *Engine) Kubeconfig() string { return e.summary.Kubeconfig }

// Network is a range of loopback addresses that no other test uses.
func (e *Engine) Network() netip.Prefix { return e.network.Prefix() }

// Process is one that the engine supervises.
type Process struct {
	Name, Kind, State string
	PID               int
	Starts            int
	LastStartMillis   float64
}

// Sources are the processes that tell of changes. There is always one.
func (e *Engine) Sources() (sources []Process) {
	e.t.Helper()
	for _, p := range e.Report().Processes {
		if strings.HasPrefix(p.Name, "apiserversource") {
			sources = append(sources, p)
		}
	}
	if len(sources) == 0 {
		e.t.Fatal("the engine has no event source")
	}
	return sources
}

// StopSources has the sources of events stand still until the test ends. They do not
// end, since they would be started again.
func (e *Engine) StopSources() {
	e.t.Helper()
	for _, p := range e.Sources() {
		if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { _ = syscall.Kill(p.PID, syscall.SIGCONT) })
	}
}

// Trigger is what has become of the events for one Trigger.
type Trigger struct {
	Name                                       string
	Received, Delivered, Retried, DeadLettered int64
	InFlight, Queued                           int64
}

// Report is the engine's account of itself.
type Report struct {
	Received  int64
	Processes []Process
	Triggers  []Trigger
}

// Report asks the engine for its account.
func (e *Engine) Report() Report {
	e.t.Helper()
	var r Report
	res, err := http.Get(e.summary.Admin)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(&r); err != nil {
		e.t.Fatal(err)
	}
	return r
}

// KillProcess ends the processes of a name with kill -9. It is no error if none
// runs.
func (e *Engine) KillProcess(name string) error {
	res, err := http.Post(e.summary.Admin+"kill/"+name, "", nil)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode >= http.StatusInternalServerError {
		return errors.New(res.Status)
	}
	return nil
}

// RestartFree has each process of a function replaced once it has no request.
func (e *Engine) RestartFree() {
	e.t.Helper()
	res, err := http.Post(e.summary.Admin+"restart-free", "", nil)
	if err != nil {
		e.t.Fatal(err)
	}
	_ = res.Body.Close()
}

func (e *Engine) output() string {
	out, _ := os.ReadFile(filepath.Join(e.Dir, "engine.out"))
	return tail(out)
}

// tell shows the end of every log of a failed test.
func (e *Engine) tell() {
	e.t.Log(e.output())
	logs, _ := filepath.Glob(filepath.Join(e.Dir, "logs", "*.log"))
	for _, path := range logs {
		if name := filepath.Base(path); name != "etcd.log" && name != "kube-apiserver.log" && name != "audit.log" {
			out, _ := os.ReadFile(path)
			e.t.Logf("%s:\n%s", name, tail(out))
		}
	}
}

func tail(out []byte) string {
	const most = 2500
	return string(out[max(0, len(out)-most):])
}
