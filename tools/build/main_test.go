package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]progress{
		"checking what is built already":               {},
		"12 modules downloaded":                        {downloaded: 12},
		"7 packages":                                   {downloaded: 12, compiled: 7},
		"300 of 1200 packages (25 %), about 3m0s left": {compiled: 300, total: 1200},
		"1200 of 1200 packages, linking":               {compiled: 1200, total: 1200},
	} {
		if got := p.describe(time.Minute); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
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
