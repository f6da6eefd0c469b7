// Package engine runs the local engine for tests: the real API server, the real event source, the
// functions' own binaries, and simulated hypervisors and nodes.
package engine

import (
	"encoding/json"
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
	"github.com/google/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/sim/kubevirt/judge"
	"github.com/vitistack/stack/tests/sim/loopback"
	"github.com/vitistack/stack/tests/stand/process"
)

// startTimeout and stopTimeout are long, because several engines share a machine.
const (
	startTimeout = 3 * time.Minute
	stopTimeout  = 30 * time.Second
)

// Engine is a running engine with its own state.
type Engine struct {
	// Dir has its state: kubeconfig, logs, results.
	Dir    string
	Client dynamic.Interface

	t       testing.TB
	flags   []string
	network *loopback.Range
	process *process.Process
	// release is the version of the stack that runs. Simulators are always those of this checkout.
	release release
	summary struct {
		Admin, Kubeconfig, APIServer, Ingress, Gateway string
	}
}

// Start builds changed programs, starts an engine with additional flags of viti-local up, and waits
// until it is ready. The engine ends with t.
func Start(t testing.TB, flags ...string) *Engine {
	t.Helper()
	return StartIn(t, t.TempDir(), flags...)
}

// StartIn is Start with a given folder for the state.
func StartIn(t testing.TB, dir string, flags ...string) *Engine {
	t.Helper()
	Build(t)
	return start(t, dir, release{root: Root(), bin: Bin(t)}, flags...)
}

func start(t testing.TB, dir string, version release, flags ...string) *Engine {
	t.Helper()
	network, err := loopback.Claim()
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Dir: dir, t: t, flags: flags, network: network, release: version}
	t.Cleanup(func() {
		e.Stop()
		_ = network.Close()
		if t.Failed() {
			e.printLogs()
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

// Build builds the changed programs of the engine.
func Build(t testing.TB) {
	t.Helper()
	if err := building(); err != nil {
		t.Fatal(err)
	}
}

// Root returns the root of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Bin returns the folder of this checkout's programs.
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

// Local returns the binary of the engine, which is also etcd, kube-apiserver and kubectl.
func Local(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "vitistack", "bin", "viti-local")
}

// Run starts the engine again after Stop or Kill, with the same state.
func (e *Engine) Run() {
	e.t.Helper()
	simulators, root := Bin(e.t), e.release.root
	program, err := judge.Program()
	if err != nil {
		e.t.Fatal(err)
	}
	args := append([]string{
		"up", "--root", root, "--state", e.Dir, "--bin", e.release.bin, "--gateway-port", "0",
		"--crds", filepath.Join(Root(), "tests/sim/kubevirt/crds"),
		"--process", "sim=" + filepath.Join(simulators, "sim") + " --state " + filepath.Join(e.Dir, "sim") + " --judge " + program, "--await", "sim",
		"--config", "AUTH_TOKENREVIEW=true", "--config", "RESULTS_PATH=" + e.Results(), "--config", "BACKUP_PATH=" + filepath.Join(e.Dir, "backups"),
		"--apply", filepath.Join(root, "apis/examples/machineprovider-kubevirt.yaml"), "--apply", filepath.Join(root, "apis/examples/networkpool-tour.yaml"),
	}, e.flags...)
	if auditFolder() != "" && !slices.Contains(args, "--audit") {
		args = append(args, "--audit")
	}
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

// Stop ends the engine as Ctrl-C does. Its state is kept.
func (e *Engine) Stop() { e.end(syscall.SIGTERM) }

// Kill ends the engine and all its processes with kill -9.
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

// Results returns the folder with the generated files of clusters.
func (e *Engine) Results() string { return filepath.Join(e.Dir, "results") }

// PID returns the ID of the engine's own process.
func (e *Engine) PID() int { return e.process.PID() }

// Gateway returns the URL of the gateway.
func (e *Engine) Gateway() string { return e.summary.Gateway }

// Ask gets a path of the gateway. It returns an error for any status except 200.
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

// Ingress returns the URL of the broker's ingress.
func (e *Engine) Ingress() string { return e.summary.Ingress }

// Send sends an event to the broker.
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

// RequestRound requests a full round of resync, as the PingSource does.
func (e *Engine) RequestRound() {
	e.t.Helper()
	ping := event.New()
	ping.SetID(uuid.NewString())
	ping.SetType(events.TypePing)
	ping.SetSource("/apis/v1/namespaces/vitistack-system/pingsources/resync")
	e.Send(ping)
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (e *Engine) Kubeconfig() string { return e.summary.Kubeconfig }

// Network returns a range of loopback addresses that no other test uses.
func (e *Engine) Network() netip.Prefix { return e.network.Prefix() }

func (e *Engine) output() string {
	out, _ := os.ReadFile(filepath.Join(e.Dir, "engine.out"))
	return tail(out)
}

// printLogs prints the end of every log of a failed test.
func (e *Engine) printLogs() {
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
