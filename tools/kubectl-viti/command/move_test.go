package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMissingNamespace refuses to move, adopt or describe what is in a namespace that does not exist, because its name is mistyped.
func TestMissingNamespace(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	raw, err := os.ReadFile(e.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	// Another name of the same API server stands for the target, which is not asked for an empty move.
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte(strings.Replace(string(raw), "https://127.0.0.1:", "https://localhost:", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := e.must("move", "--to-kubeconfig", other); out != "There is nothing to move in namespace "+e.namespace+".\n" {
		t.Errorf("an empty namespace: %s", out)
	}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	for _, args := range [][]string{{"move", "--to-kubeconfig", other}, {"move", "--to-kubeconfig", other, "--dry-run"}, {"adopt"}, {"adopt", "--dry-run"}, {"support-bundle", "--file", file}} {
		if out, errs, code := e.run(append(args, "-n", "nowhere")...); code != 1 || !strings.Contains(errs, `"nowhere"`) || out != "" {
			t.Errorf("%v: got %d, %q, %q", args, code, out, errs)
		}
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a bundle is written: %v", err)
	}
}
