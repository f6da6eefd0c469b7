// Package apiserver runs a private etcd and kube-apiserver for tests.
//
// The server is the real one: RBAC, admission, server-side defaulting and
// watches behave as in a cluster. No controller manager runs, so nothing
// collects garbage, and a deleted namespace keeps its content.
//
// One server is shared by all tests that use it at the same time; a test keeps
// to a namespace of its own. A package with many tests says so in TestMain, so
// that the server is started once and not again between two tests:
//
//	func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }
package apiserver

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// startTimeout bounds the start of etcd and kube-apiserver together. On two busy
// cores it takes about ten seconds.
const startTimeout = 3 * time.Minute

// Server is a running kube-apiserver.
type Server struct {
	config *rest.Config
	stop   func()
	signer signer
	// installed has the names of the CustomResourceDefinitions that Install has installed. The mutex installing guards it.
	installed map[string]bool
}

var shared struct {
	sync.Mutex
	server *Server
	users  int
}

// Start returns the shared server. It starts the server if no test uses one yet. The server runs at
// least until t ends. It fails t if the binaries are missing or the server does not become ready.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := acquire()
	if err != nil {
		t.Fatalf("start an API server: %v", err)
	}
	t.Cleanup(release)
	return s
}

// StartAnother starts a server that only t uses: another cluster.
func StartAnother(t testing.TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := start(ctx)
	if err != nil {
		t.Fatalf("start another API server: %v", err)
	}
	t.Cleanup(s.stop)
	return s
}

// Run runs the tests of m with one server for all of them, which the first test that needs it starts,
// and returns the exit code. It sets how often the process collects garbage.
func Run(m *testing.M) int {
	shared.Lock()
	shared.users++
	shared.Unlock()
	defer release()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	return m.Run()
}

func acquire() (*Server, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		defer cancel()
		s, err := start(ctx)
		if err != nil {
			return nil, err
		}
		shared.server = s
	}
	shared.users++
	return shared.server, nil
}

func release() {
	shared.Lock()
	defer shared.Unlock()
	shared.users--
	if shared.users == 0 && shared.server != nil {
		shared.server.stop()
		shared.server = nil
	}
}

// Config returns a copy of the configuration that authenticates as a cluster administrator, without a
// client-side rate limit.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// Namespace creates a namespace for t and returns its name. At the end of t it deletes the namespace.
// The objects in it remain, because no namespace controller runs.
func (s *Server) Namespace(t testing.TB) string {
	t.Helper()
	client, err := s.core()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("t%d-%s", os.Getpid(), suffix())
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"annotations":{"test":%q}}}`,
		name, strings.ToValidUTF8(t.Name(), ""))
	if err := client.Post().Resource("namespaces").Body([]byte(body)).Do(context.Background()).Error(); err != nil {
		t.Fatalf("create namespace %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := client.Delete().Resource("namespaces").Name(name).Do(context.Background()).Error(); err != nil {
			t.Errorf("delete namespace %s: %v", name, err)
		}
	})
	return name
}
