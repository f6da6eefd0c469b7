package e2e

import (
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestReadme runs the commands of the README's tour in a folder like a checkout in which make run is
// running.
func TestReadme(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.Apply("default", e.StaticNetwork("tour-network", 10, 250))
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	readme, err := os.ReadFile(filepath.Join(engine.Root(), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	script := "set -eu\n"
	for _, block := range strings.Split(string(readme), "```sh\n")[1:] {
		commands, _, _ := strings.Cut(block, "```")
		script += commands
	}
	folder := t.TempDir()
	for link, target := range map[string]string{".run": e.Dir, "apis": filepath.Join(engine.Root(), "apis"), "hack/results": e.Results()} {
		path := filepath.Join(folder, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", script)
	command.Dir = folder
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("the tour ends with %v:\n%s", err, out)
	}
	for _, want := range []string{
		"Nothing needs attention.", "├ uses NetworkNamespace tour-network", "kubectl viti upgrade simple-cluster --to", "has the context default-simple-cluster", "simple-cluster-worker-pool-1-1", "every node is Ready", "simple-cluster-cp-0.talos.yaml", "Ready", "medium",
		"machine.vitistack.io/db condition met", "kubernetescluster.vitistack.io/web condition met", "web-pool-1", "write 1, 3, 5 or 7", `machine.vitistack.io "basic-vm" deleted`, `kubernetescluster.vitistack.io "simple-cluster" deleted`, "No resources found",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour should show %q:\n%s", want, out)
		}
	}
}

// TestExamplesOfClusters applies the examples that other pages name, until their clusters are Ready.
func TestExamplesOfClusters(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", e.Example("cluster-with-addons.yaml"))
	template, cluster, _ := strings.Cut(e.Example("clustertemplate.yaml"), "\n---\n")
	e.Apply("", template)
	e.Apply("default", cluster)
	for _, name := range []string{"addons-cluster", "from-template"} {
		feed.Until(t, name+" is Ready", func() (bool, string) {
			status, message := condition(e.Get(engine.KubernetesClusters, "default", name), "Ready")
			return status == "True", message
		})
	}
	feed.Until(t, "the template is Ready", func() (bool, string) {
		status, message := condition(e.Get(engine.ClusterTemplates, "", "standard"), "Ready")
		return status == "True", message
	})
}

// TestOnlyLoopback reaches the gateway at no other address than that of the README.
func TestOnlyLoopback(t *testing.T) {
	t.Parallel()
	gateway, err := url.Parse(engine.Start(t).Gateway())
	if err != nil {
		t.Fatal(err)
	}
	if gateway.Hostname() != "127.0.0.1" {
		t.Fatalf("the gateway is at %s", gateway)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.2", gateway.Port())); err == nil {
		_ = conn.Close()
		t.Errorf("the gateway answers at %s", conn.RemoteAddr())
	}
}
