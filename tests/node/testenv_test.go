package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/lab"
	"github.com/vitistack/stack/tests/stand/registry"
)

// system is the namespace of the stack.
const system = "vitistack-system"

// folder returns the folder of build.sh, or an empty string if the suite was not requested.
func folder() string { return os.Getenv("VITI_NODE") }

func TestMain(m *testing.M) { os.Exit(lab.Node(folder()).Main(m)) }

// env is a node in a lab, with the repository and the commands of a user.
type env struct {
	*machine
	t       *testing.T
	root    string          // the repository
	suite   context.Context // ends after all steps
	results *results
	start   time.Time
}

func newEnv(t *testing.T) *env {
	t.Helper()
	if folder() == "" {
		t.Skip("run make test-node")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(folder(), "bin")
	m, err := newMachine(lab.Node(folder()), programs)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{machine: m, t: t, root: root, suite: t.Context(), results: newResults(t, root), start: time.Now()}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	t.Setenv("KUBECONFIG", m.keys.path("admin.kubeconfig"))
	// The lab has no Internet access.
	t.Setenv("GOPROXY", "off")
	e.serveImages()
	return e
}

// in returns the fixture of a subtest.
func (e *env) in(t *testing.T) *env {
	copied := *e
	copied.t, copied.start = t, time.Now()
	t.Cleanup(func() {
		if t.Failed() {
			copied.printState()
		}
	})
	return &copied
}

// step prints what has been reached, and returns the time since the last step.
func (e *env) step(format string, args ...any) time.Duration {
	e.t.Helper()
	took := time.Since(e.start)
	e.t.Logf("%6.1f s  %s", took.Seconds(), fmt.Sprintf(format, args...))
	e.start = time.Now()
	return took
}

// serveImages serves the images of build.sh, and takes those of the stack, until the test ends.
func (e *env) serveImages() {
	e.t.Helper()
	folders, err := filepath.Glob(filepath.Join(folder(), "images", "*"))
	if err != nil || len(folders) == 0 {
		e.t.Fatalf("find the images of build.sh in %s: %d, %v; run make test-node", folder(), len(folders), err)
	}
	var all []registry.Image
	for _, path := range folders {
		name := filepath.Base(path)
		programs, err := os.ReadDir(filepath.Join(path, "ko-app"))
		if err != nil || len(programs) != 1 {
			e.t.Fatalf("image %s has not one program: %d, %v", name, len(programs), err)
		}
		image := registry.Image{Name: name, Folder: path, Entrypoint: []string{"/ko-app/" + programs[0].Name()}, User: "65532:65532"}
		if name == "coredns" {
			image.User = "" // it listens on port 53
		}
		all = append(all, image)
	}
	own, err := registry.New(all...)
	if err != nil {
		e.t.Fatal(err)
	}
	const behind = "127.0.0.1:5001"
	pushed, err := startService("registry", e.path("logs", "registry.log"), filepath.Join(e.programs, "crane"), "registry", "serve", "--address", behind,
		"--disk", e.path("blobs"))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(pushed.stop)
	if err := os.MkdirAll(e.path("blobs"), 0o700); err != nil {
		e.t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind})
	listener, err := net.Listen("tcp", registryURL)
	if err != nil {
		e.t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2/vitistack/") || strings.HasPrefix(r.URL.Path, "/v2/charts/") {
			forward.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	e.t.Cleanup(func() { _ = server.Close() })
}

// run runs a command in the repository, and returns its standard output.
func (e *env) run(ctx context.Context, input, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stdin = e.root, strings.NewReader(input)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, &problems)
	}
	return out.String(), nil
}

// must runs a command that has to succeed within a time.
func (e *env) must(timeout time.Duration, name string, args ...string) string {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), timeout)
	defer cancel()
	out, err := e.run(ctx, "", name, args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

// kubectl runs kubectl, and returns its standard output.
func (e *env) kubectl(args ...string) string {
	e.t.Helper()
	return e.must(5*time.Minute, "kubectl", args...)
}

// apply applies a manifest, again and again until the API server accepts it: its webhooks may start.
func (e *env) apply(manifest string) {
	e.t.Helper()
	e.await("apply", 2*time.Minute, func(ctx context.Context) error {
		_, err := e.run(ctx, manifest, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
		return err
	})
}

// await waits until done returns nil, and fails the test with its last error after a timeout.
func (e *env) await(what string, timeout time.Duration, done func(context.Context) error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), timeout)
	defer cancel()
	last := errors.New("never tried")
	for ctx.Err() == nil {
		err := done(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
	e.t.Fatalf("%s: not after %s: %v", what, timeout, last)
}

// object is what the tests read of any object.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace, DeletionTimestamp string
		Labels                             map[string]string
		Finalizers                         []string
	}
	Status struct {
		Phase, ProvisioningPhase string
		Conditions               []struct{ Type, Status, Reason, Message string }
		ContainerStatuses        []struct {
			Name         string
			RestartCount int
			State        struct {
				Waiting *struct{ Reason, Message string }
			}
		}
	}
}

// list returns the objects that kubectl get prints for arguments.
func (e *env) list(ctx context.Context, args ...string) ([]object, error) {
	out, err := e.run(ctx, "", "kubectl", append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []object }
	return list.Items, json.Unmarshal([]byte(out), &list)
}

// condition returns the status of a condition, and its reason with its message.
func (o object) condition(kind string) (status, why string) {
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			return c.Status, c.Reason + ": " + c.Message
		}
	}
	return "", "it has no condition " + kind
}

// requireReady returns an error that names the objects whose condition is not True.
func (e *env) requireReady(ctx context.Context, condition string, args ...string) error {
	all, err := e.list(ctx, args...)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("there is nothing of %s", strings.Join(args, " "))
	}
	var errs []error
	for _, o := range all {
		if status, why := o.condition(condition); status != "True" {
			errs = append(errs, fmt.Errorf("%s %s/%s: %s", o.Kind, o.Metadata.Namespace, o.Metadata.Name, why))
		}
	}
	return errors.Join(errs...)
}

// printState prints what is not ready, with the end of the logs.
func (e *env) printState() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	show := func(name string, args ...string) {
		out, err := e.run(ctx, "", name, args...)
		if err != nil {
			out += err.Error()
		}
		e.t.Logf("%s %s\n%s", name, strings.Join(args, " "), out)
	}
	show("kubectl", "get", "pods", "-A", "-o", "wide")
	show("kubectl", "get", "events", "-A", "--field-selector", "type=Warning", "--sort-by=.lastTimestamp")
	show("kubectl", "get", "ksvc,trigger,broker,apiserversource,pingsource,deployment", "-A")
	all, _ := e.list(ctx, "pods", "-A")
	for _, pod := range all {
		if ready, _ := pod.condition("Ready"); ready != "True" && pod.Status.Phase != "Succeeded" {
			show("kubectl", "logs", "--all-containers", "--tail=15", "-n", pod.Metadata.Namespace, pod.Metadata.Name)
		}
	}
	for name, s := range e.services {
		if all == nil {
			e.t.Logf("%s\n%s", name, s.tail())
		}
	}
}
