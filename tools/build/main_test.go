package main

import (
	"bytes"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, p := range map[string]progress{
		"checking what is built already":               {},
		"12 modules downloaded":                        {downloaded: 12},
		"7 packages":                                   {downloaded: 12, compiled: 7},
		"300 of 1200 packages (25 %), about 3m0s left": {downloaded: 12, compiled: 300, total: 1200, compiling: now.Add(-time.Minute)},
		"1200 of 1200 packages, linking":               {compiled: 1200, total: 1200},
	} {
		if got := p.describe(now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestReadAfterDownloads checks that the time left does not grow with the duration of downloads.
func TestReadAfterDownloads(t *testing.T) {
	t.Parallel()
	began := time.Now()
	b := &build{began: began.Add(-time.Hour)}
	for _, line := range []string{"go: downloading k8s.io/api v0.35.7", "fmt", "os"} {
		b.read(line)
	}
	if b.downloaded != 1 || b.compiled != 2 || b.compiling.Before(began) {
		t.Errorf("got %+v, want one module, two packages, and a start after %s", b.progress, began)
	}
}

// TestRun builds a package that is correct, and one that is not.
func TestRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &build{title: "the test", folder: ".", packages: []string{"."}, out: &out, began: time.Now()}
	if err := b.run(t.Context(), t.TempDir()+"/"); err != nil || out.Len() > 0 && !strings.Contains(out.String(), "the test") {
		t.Errorf("%v: %s", err, out.String())
	}
	b.packages = []string{"./missing"}
	if err := b.run(t.Context(), t.TempDir()+"/"); err == nil || !strings.Contains(out.String(), "missing") {
		t.Errorf("a package that is missing: %v: %s", err, out.String())
	}
}

// TestSettings checks that the compiler writes nothing that the linker strips, and that a GOGC of the environment takes precedence over ours.
func TestSettings(t *testing.T) {
	t.Parallel()
	flags, environment := settings([]string{"GOGC=50"}, "-X main.version=1", false)
	for _, want := range []string{"-gcflags=all=-dwarf=false", "-s -w -X main.version=1"} {
		if !slices.Contains(flags, want) {
			t.Errorf("the flags %q lack %q", flags, want)
		}
	}
	cmd := exec.Cmd{Env: environment}
	for _, want := range []string{"GOGC=50", "CGO_ENABLED=0"} {
		if got := cmd.Environ(); !slices.Contains(got, want) {
			t.Errorf("the environment %q lacks %q", got, want)
		}
	}
	if flags, environment = settings(nil, "", true); !slices.Contains(flags, "-race") || !slices.Contains(environment, "CGO_ENABLED=1") {
		t.Errorf("with the race detector: %q, %q", flags, environment)
	}
	for _, want := range []string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=1GiB"} {
		if !slices.Contains(environment, want) {
			t.Errorf("the environment %q lacks %q", environment, want)
		}
	}
	if at := slices.Index(flags, "-p"); at < 0 || flags[at+1] != strconv.Itoa(runtime.GOMAXPROCS(0)) {
		t.Errorf("the flags %q do not use all processors", flags)
	}
}
