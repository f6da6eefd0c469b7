package node

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/knative"
	"github.com/vitistack/stack/tests/stand/kubernetes"
	"github.com/vitistack/stack/tests/stand/lab"
	"github.com/vitistack/stack/tests/stand/results"
)

// folder returns the folder of build.sh, or an empty string if the suite was not requested.
func folder() string { return os.Getenv("VITI_NODE") }

func TestMain(m *testing.M) { os.Exit(lab.Node(folder()).Main(m)) }

// env is a node in a lab, with what the steps measure.
type env struct {
	*knative.Cluster
	suite   context.Context // ends after all steps
	results *results.Page
}

func newEnv(t *testing.T) *env {
	t.Helper()
	if folder() == "" {
		t.Skip("run make test-node")
	}
	c := kubernetes.New(t, lab.Node(folder()), knative.Programs(folder()))
	e := &env{Cluster: knative.New(c, folder()), suite: t.Context(), results: results.New(t, c.Root, "make test-node RESULTS=tests/node/RESULTS.md")}
	e.Serve()
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
