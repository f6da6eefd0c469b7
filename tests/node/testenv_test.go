package node

import (
	"context"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/kubernetes"
	"github.com/vitistack/stack/tests/stand/lab"
	"github.com/vitistack/stack/tests/stand/registry"
	"github.com/vitistack/stack/tests/stand/results"
)

// system is the namespace of the stack.
const system = "vitistack-system"

// folder returns the folder of build.sh, or an empty string if the suite was not requested.
func folder() string { return os.Getenv("VITI_NODE") }

func TestMain(m *testing.M) { os.Exit(lab.Node(folder()).Main(m)) }

// env is a node in a lab, with what the steps measure.
type env struct {
	*kubernetes.Cluster
	suite   context.Context // ends after all steps
	results *results.Page
}

func newEnv(t *testing.T) *env {
	t.Helper()
	if folder() == "" {
		t.Skip("run make test-node")
	}
	c := kubernetes.New(t, lab.Node(folder()), filepath.Join(folder(), "bin"))
	e := &env{Cluster: c, suite: t.Context(), results: results.New(t, c.Root, "make test-node RESULTS=tests/node/RESULTS.md")}
	e.serveImages()
	return e
}

// in returns the fixture of a subtest.
func (e *env) in(t *testing.T) *env {
	copied := *e
	t.Cleanup(func() {
		if t.Failed() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			copied.Show(ctx, "kubectl", "get", "ksvc,trigger,broker,apiserversource,pingsource,deployment", "-A")
		}
	})
	copied.Cluster = e.In(t)
	return &copied
}

// serveImages serves the images of build.sh, and takes those of the stack, until the test ends.
func (e *env) serveImages() {
	e.T.Helper()
	folders, err := filepath.Glob(filepath.Join(folder(), "images", "*"))
	if err != nil || len(folders) == 0 {
		e.T.Fatalf("find the images of build.sh in %s: %d, %v; run make test-node", folder(), len(folders), err)
	}
	var all []registry.Image
	for _, path := range folders {
		name := filepath.Base(path)
		programs, err := os.ReadDir(filepath.Join(path, "ko-app"))
		if err != nil || len(programs) != 1 {
			e.T.Fatalf("image %s has not one program: %d, %v", name, len(programs), err)
		}
		image := registry.Image{Name: name, Folder: path, Entrypoint: []string{"/ko-app/" + programs[0].Name()}, User: "65532:65532"}
		if name == "coredns" {
			image.User = "" // it listens on port 53
		}
		all = append(all, image)
	}
	own, err := registry.New(all...)
	if err != nil {
		e.T.Fatal(err)
	}
	const behind = "127.0.0.1:5001"
	if err := errors.Join(os.MkdirAll(e.Path("blobs"), 0o700),
		e.StartService("registry", e.Program("crane"), "registry", "serve", "--address", behind, "--disk", e.Path("blobs"))); err != nil {
		e.T.Fatal(err)
	}
	e.T.Cleanup(e.Services["registry"].Stop)
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind})
	e.ServeRegistry(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v2/vitistack/") || strings.HasPrefix(r.URL.Path, "/v2/charts/") {
			forward.ServeHTTP(w, r)
			return
		}
		own.ServeHTTP(w, r)
	}))
}
