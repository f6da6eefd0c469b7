// Package clock makes the clocks of functions wrong, or passes time faster for one of them.
package clock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
)

// folder is the variable with the folder of the offsets.
const folder = "TEST_CLOCKS"

// source is the source of a function's clock: its time is off by the duration in the file with the
// function's name in the folder.
const source = `package main

import (
	"os"
	"path/filepath"
	"time"
)

func testClock(now func() time.Time) func() time.Time {
	return func() time.Time {
		text, _ := os.ReadFile(filepath.Join(os.Getenv("` + folder + `"), filepath.Base(os.Args[0])))
		off, _ := time.ParseDuration(string(text))
		return now().Add(off)
	}
}
`

// Clocks are the clocks of functions in an engine.
type Clocks struct {
	t         testing.TB
	functions []string
	bin, dir  string
}

// New builds functions whose clocks can be set. All other programs of the engine stay as they are.
func New(t testing.TB, functions ...string) *Clocks {
	t.Helper()
	engine.Build(t)
	c := &Clocks{t: t, functions: functions, bin: filepath.Join(t.TempDir(), "bin"), dir: t.TempDir()}
	if err := os.Mkdir(c.bin, 0o700); err != nil {
		t.Fatal(err)
	}
	programs, err := os.ReadDir(engine.Bin(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		if slices.Contains(functions, program.Name()) {
			continue
		}
		if err := os.Symlink(filepath.Join(engine.Bin(t), program.Name()), filepath.Join(c.bin, program.Name())); err != nil {
			t.Fatal(err)
		}
	}
	c.build()
	return c
}

// Flags are the flags of viti-local up that have the engine use the clocks.
func (c *Clocks) Flags() []string { return []string{"--bin", c.bin, "--config", folder + "=" + c.dir} }

// Set changes the clock of a function at once: it is off by a duration.
func (c *Clocks) Set(function string, off time.Duration) {
	c.t.Helper()
	if !slices.Contains(c.functions, function) {
		c.t.Fatalf("%s was built with the usual clock", function)
	}
	path := filepath.Join(c.dir, function)
	if err := os.WriteFile(path+".new", []byte(fmt.Sprint(off)), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		c.t.Fatal(err)
	}
}

// Reset makes all clocks right again.
func (c *Clocks) Reset() {
	c.t.Helper()
	for _, function := range c.functions {
		c.Set(function, 0)
	}
}

// build builds the functions with an overlay that replaces the clock in their main.go.
func (c *Clocks) build() {
	c.t.Helper()
	dir := c.t.TempDir()
	extra := filepath.Join(dir, "clock.go")
	if err := os.WriteFile(extra, []byte(source), 0o600); err != nil {
		c.t.Fatal(err)
	}
	replace := map[string]string{}
	command := exec.CommandContext(c.t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w")
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if engine.Race() {
		command.Args, command.Env = append(command.Args, "-race"), append(os.Environ(), "CGO_ENABLED=1")
	}
	var packages []string
	for _, name := range c.functions {
		folder := filepath.Join(engine.Root(), "functions", name)
		text, err := os.ReadFile(filepath.Join(folder, "main.go"))
		if err != nil {
			c.t.Fatal(err)
		}
		changed := bytes.ReplaceAll(text, []byte("time.Now"), []byte("testClock(time.Now)"))
		if bytes.Equal(changed, text) {
			c.t.Fatalf("%s sets no clock in its main.go", name)
		}
		main := filepath.Join(dir, name+".go")
		if err := os.WriteFile(main, changed, 0o600); err != nil {
			c.t.Fatal(err)
		}
		replace[filepath.Join(folder, "main.go")], replace[filepath.Join(folder, "clock.go")] = main, extra
		packages = append(packages, "./functions/"+name)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		c.t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		c.t.Fatal(err)
	}
	command.Dir, command.Args = engine.Root(), append(append(command.Args, "-overlay", file, "-o", c.bin+"/"), packages...)
	if out, err := command.CombinedOutput(); err != nil {
		c.t.Fatalf("build functions with clocks: %v\n%s", err, out)
	}
}
