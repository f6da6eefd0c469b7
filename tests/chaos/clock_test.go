package chaos

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vitistack/stack/tests/stand/engine"
)

// clock is the source of a function's clock: its time is off by the duration in the file with the
// function's name in the folder CHAOS_CLOCKS.
const clock = `package main

import (
	"os"
	"path/filepath"
	"time"
)

func chaosClock(now func() time.Time) func() time.Time {
	return func() time.Time {
		text, _ := os.ReadFile(filepath.Join(os.Getenv("CHAOS_CLOCKS"), filepath.Base(os.Args[0])))
		off, _ := time.ParseDuration(string(text))
		return now().Add(off)
	}
}
`

// buildClocks builds the functions with such clocks, and returns a folder with all programs of the
// engine.
func buildClocks(t *testing.T) string {
	t.Helper()
	engine.Build(t)
	dir, bin := t.TempDir(), filepath.Join(t.TempDir(), "bin")
	if err := os.CopyFS(bin, os.DirFS(engine.Bin(t))); err != nil {
		t.Fatal(err)
	}
	extra := filepath.Join(dir, "clock.go")
	if err := os.WriteFile(extra, []byte(clock), 0o600); err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, name := range functions {
		source := filepath.Join(engine.Root(), "functions", name)
		text, err := os.ReadFile(filepath.Join(source, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.ReplaceAll(text, []byte("time.Now"), []byte("chaosClock(time.Now)"))
		if bytes.Equal(changed, text) {
			t.Fatalf("%s sets no clock in its main.go", name)
		}
		main := filepath.Join(dir, name+".go")
		if err := os.WriteFile(main, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(source, "main.go")], replace[filepath.Join(source, "clock.go")] = main, extra
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-overlay", file, "-o", bin+"/", "./functions/...")
	command.Dir, command.Env = engine.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if engine.Race() {
		command.Args, command.Env = slices.Insert(command.Args, 2, "-race"), append(os.Environ(), "CGO_ENABLED=1")
	}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build functions with clocks: %v\n%s", err, out)
	}
	return bin
}
