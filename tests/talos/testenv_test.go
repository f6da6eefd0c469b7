package talos

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/lab"
	"github.com/vitistack/stack/tests/stand/registry"
	"github.com/vitistack/stack/tests/stand/results"
)

// Ports of the registry, and of the gateway for events of nodes, at the address of the lab.
const (
	registryPort = "5000"
	eventsPort   = "9993"
)

var storageClasses = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}

// root is the repository.
const root = "../.."

// folder returns the folder of build.sh, or an empty string if the suite was not requested.
func folder() string { return os.Getenv("VITI_TALOS") }

func TestMain(m *testing.M) { os.Exit(lab.Talos(folder()).Main(m)) }

// env is a local engine whose guests are real Talos nodes.
type env struct {
	*engine.Engine
	t     *testing.T
	dir   string // credentials of the cluster
	start time.Time
	// images is the registry of the nodes.
	images  *images
	results *results.Page
}

// newEnv starts the stack with the network of the lab. command is how the page of results is written.
func newEnv(t *testing.T, command string) *env {
	t.Helper()
	if folder() == "" {
		t.Skip("make test-talos sets VITI_TALOS, and builds the programs in it")
	}
	served := serveImages(t)
	t.Setenv("VITI_LAB", folder())
	t.Setenv("VITI_GUESTS", filepath.Join(folder(), "bin", "node"))
	e := &env{t: t, dir: t.TempDir(), start: time.Now(), images: served}
	sink := net.JoinHostPort(lab.Gateway, eventsPort)
	e.Engine = engine.Start(t, "--config", "NODE_EVENTS_ADDRESS="+sink, "--config", "NODE_EVENTS_ENDPOINT="+sink)
	e.results = results.New(t, root, command)
	t.Cleanup(func() { e.results.Write(t, root) })
	t.Cleanup(func() {
		if t.Failed() {
			printConsoles(t)
		}
	})
	e.await("the simulated KubeVirt has a StorageClass", time.Minute, func(ctx context.Context) error {
		list, err := e.Client.Resource(storageClasses).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	e.step("the stack is ready")
	e.Apply(namespace, fmt.Sprintf(network, strings.ReplaceAll(patch, "\n", "\n    ")))
	return e
}

// step prints what has been reached, with the seconds since the last step.
func (e *env) step(format string, args ...any) {
	e.t.Helper()
	e.t.Logf("%6.1f s  %s", time.Since(e.start).Seconds(), fmt.Sprintf(format, args...))
	e.start = time.Now()
}

// images is the registry of the lab.
type images struct {
	registry http.Handler

	mu    sync.Mutex
	held  string        // the repository that does not answer
	free  chan struct{} // closed when it answers
	asked func()        // called when a request waits
}

// hold delays all answers for a repository until release is called. The returned channel is closed when a request waits.
func (i *images) hold(repository string) (asked <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	waits := make(chan struct{})
	i.held, i.free, i.asked = repository, make(chan struct{}), sync.OnceFunc(func() { close(waits) })
	return waits
}

func (i *images) release() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.held = ""
	close(i.free)
}

func (i *images) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	held, free, asked := i.held, i.free, i.asked
	i.mu.Unlock()
	if held != "" && strings.Contains(r.URL.Path, "/"+held+"/") {
		asked()
		select {
		case <-free:
		case <-r.Context().Done():
		}
	}
	i.registry.ServeHTTP(w, r)
}

// serveImages serves the images of rootfs.sh until the test ends.
func serveImages(t *testing.T) *images {
	t.Helper()
	entrypoints := map[string][]string{"pause": {"/pause"}, "coredns": {"/coredns"}}
	var all []registry.Image
	for in, tag := range map[string]string{"images": "", "upgraded": "v" + upgradedVersion} {
		folders, err := filepath.Glob(filepath.Join(folder(), in, "*"))
		if err != nil || len(folders) == 0 {
			t.Fatalf("find the images of rootfs.sh in %s/%s: %d, %v; run make test-talos", folder(), in, len(folders), err)
		}
		for _, path := range folders {
			name := filepath.Base(path)
			all = append(all, registry.Image{Name: name, Tag: tag, Folder: path, Entrypoint: entrypoints[name]})
		}
	}
	handler, err := registry.New(all...)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(lab.Gateway, registryPort))
	if err != nil {
		t.Fatal(err)
	}
	i := &images{registry: handler}
	server := &http.Server{Handler: i, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return i
}

// printConsoles prints the end of the console of each node.
func printConsoles(t *testing.T) {
	t.Helper()
	consoles, _ := filepath.Glob(filepath.Join(lab.Talos(folder()).Nodes(), "*", "console.log"))
	for _, path := range consoles {
		text, _ := os.ReadFile(path)
		const most = 4000
		t.Logf("%s:\n%s", path, text[max(0, len(text)-most):])
	}
}

// await waits until done returns nil, and fails the test with its last error after a timeout.
func (e *env) await(what string, timeout time.Duration, done func(context.Context) error) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), timeout)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			e.t.Fatalf("%s: not after %s: %v", what, timeout, err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// secret returns a value of a Secret of the cluster.
func (e *env) secret(name, key string) []byte {
	e.t.Helper()
	secret := e.Get(engine.Secrets, namespace, clusterName+"-"+name)
	if secret == nil {
		e.t.Fatalf("Secret %s-%s does not exist", clusterName, name)
	}
	encoded, _, _ := unstructured.NestedString(secret.Object, "data", key)
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(content) == 0 {
		e.t.Fatalf("Secret %s has no %s: %v", secret.GetName(), key, err)
	}
	return content
}

// credential writes a value of a Secret of the cluster into a file of the same name, and returns its path.
func (e *env) credential(key string) string {
	e.t.Helper()
	path := filepath.Join(e.dir, key)
	if err := os.WriteFile(path, e.secret(key, key), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return path
}

// workload returns a client of the tenant for the created cluster.
func (e *env) workload() kubernetes.Interface {
	e.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", e.credential("kubeconfig"))
	if err != nil {
		e.t.Fatal(err)
	}
	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.t.Fatal(err)
	}
	return client
}

// talosctl runs Talos's own client, and returns its standard output.
func talosctl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(folder(), "bin", "talosctl"), args...)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("talosctl %s: %w: %s", strings.Join(args, " "), err, &problems)
	}
	return out.String(), nil
}

// runNode runs the program node with a verb for the node of an ID, whose kubevirt.Guest is guest.
func runNode(verb, id string, guest []byte) error {
	command := exec.Command(filepath.Join(folder(), "bin", "node"), verb, id)
	command.Stdin = bytes.NewReader(guest)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("node %s %s: %w: %s", verb, id, err, out)
	}
	return nil
}

// nodeFolders returns the folders of all nodes that exist.
func nodeFolders() ([]string, error) {
	entries, err := os.ReadDir(lab.Talos(folder()).Nodes())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names, err
}
