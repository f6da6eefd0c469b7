package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/knative/local/process"
)

// TestBuildDeployments starts a Deployment whose program is built while everything else runs.
func TestBuildDeployments(t *testing.T) {
	o, out := lateBuild(t, `sh -c 'until test -e "$STATE/go"; do sleep 0.1; done; cp "$BIN/function" "$BIN/late"'`)
	r := startRig(t, o, out)
	for _, status := range r.report().Processes {
		if status.Name == "gateway" {
			t.Errorf("the Deployment runs before its program is built: %+v", status)
		}
	}
	if !strings.Contains(out.String(), "(once it is built)") {
		t.Errorf("the status page is announced as if it was there:\n%s", out)
	}
	if err := os.WriteFile(filepath.Join(o.State, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.eventually("the status page is ready", func() bool { return strings.Contains(out.String(), "status page ready: http://127.0.0.1:") })
	if status := r.process("gateway"); status.State != process.StateReady || status.Starts != 1 {
		t.Errorf("got %+v, want a ready process", status)
	}
	pid := r.process("gateway").PID
	if err := r.stop(); err != nil || !gone(pid) {
		t.Errorf("the Deployment outlives the engine: %v", err)
	}
}

// TestFailedBuild checks that the engine continues, and that a stop ends a build.
func TestFailedBuild(t *testing.T) {
	for command, want := range map[string]string{
		"false": "build the Deployments: exit status 1; continuing without it",
		"true":  "late is no program",
	} {
		o, out := lateBuild(t, command)
		r := startRig(t, o, out)
		r.eventually(want, func() bool { return strings.Contains(out.String(), want) })
		if err := r.stop(); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	o, out := lateBuild(t, `sh -c 'echo building with $$; sleep 1000; true'`)
	r := startRig(t, o, out)
	r.eventually("the build runs", func() bool { return strings.Contains(out.String(), "building with") })
	began := time.Now()
	if err := r.stop(); err != nil || time.Since(began) > componentGrace {
		t.Errorf("stopped after %s: %v", time.Since(began), err)
	}
}

// lateBuild returns the options of an engine whose Deployment has a program that does not exist. In the command, STATE and BIN are directories.
func lateBuild(t *testing.T, command string) (Options, *output) {
	t.Helper()
	o, out := testOptions(t)
	bin := t.TempDir()
	if err := os.CopyFS(bin, os.DirFS(o.Bin)); err != nil {
		t.Fatal(err)
	}
	o.Bin, o.Root = bin, filepath.Join(t.TempDir(), "root")
	if err := os.CopyFS(o.Root, os.DirFS("testdata/root")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(o.Root, "knative", "stack.yaml")
	manifests, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, deployment, _ := strings.Cut(string(manifests), "kind: Deployment\n")
	deployment = strings.Replace(deployment, "engine/testdata/function", "engine/testdata/late", 1)
	if err := os.WriteFile(path, []byte(before+"kind: Deployment\n"+deployment), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Build = strings.NewReplacer("$STATE", o.State, "$BIN", bin).Replace(command)
	return o, out
}
