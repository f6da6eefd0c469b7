package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeGo answers go env and go list, and instead of go run writes the program.
const fakeGo = `#!/bin/sh
case $1 in
env) cat "$FAKE/version" ;;
list) echo v1.35.6 ;;
run) echo build >> "$FAKE/builds"
  while [ "$1" != -o ]; do shift; done
  echo program > "$2"; chmod +x "$2" ;;
esac
`

// TestEngineScript checks that knative/local/build.sh builds after each change, and only then.
func TestEngineScript(t *testing.T) {
	t.Parallel()
	fake, root := t.TempDir(), t.TempDir()
	local := filepath.Join(root, "knative", "local")
	script, err := os.ReadFile("../../knative/local/build.sh")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(fake, "go"), fakeGo)
	write(t, filepath.Join(fake, "version"), "go1.26.6")
	write(t, filepath.Join(local, "build.sh"), string(script))
	write(t, filepath.Join(local, "main.go"), "package main")
	write(t, filepath.Join(root, "tools", "build", "main.go"), "package main")
	program := filepath.Join(fake, "viti-local")
	want := 0
	check := func(what string, builds bool) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", filepath.Join(local, "build.sh"), program)
		cmd.Env = append(os.Environ(), "FAKE="+fake, "PATH="+fake+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", what, err, out)
		}
		if builds {
			want++
		}
		done, err := os.ReadFile(filepath.Join(fake, "builds"))
		if got := strings.Count(string(done), "build"); err != nil || got != want {
			t.Errorf("%s: %d builds, want %d (%v)", what, got, want, err)
		}
	}
	check("no program", true)
	check("nothing has changed", false)
	write(t, filepath.Join(local, "main_test.go"), "package main")
	check("a test is new", false)
	write(t, filepath.Join(local, "main.go"), "package main // changed")
	check("a source has changed", true)
	write(t, filepath.Join(local, "crds", "crd.yaml"), "kind: CustomResourceDefinition")
	check("an embedded file is new", true)
	write(t, filepath.Join(root, "tools", "build", "main.go"), "package main // changed")
	check("the flags may have changed", true)
	write(t, filepath.Join(fake, "version"), "go1.27.0")
	check("another Go", true)
	if err := os.Chtimes(program, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	check("another checkout has written the program", true)
	check("nothing has changed since", false)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}
