package engine

import (
	"bytes"
	"os"
	"path/filepath"
)

// Race reports whether the programs have the race detector, which RACE enables.
func Race() bool { return os.Getenv("RACE") != "" }

// noRaces fails the test with the first data race that each program has reported.
func (e *Engine) noRaces() {
	e.t.Helper()
	if !Race() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(e.Dir, "logs", "*.log*")) // including rotated logs
	for _, path := range logs {
		const most = 8000
		text, err := os.ReadFile(path)
		if err != nil {
			e.t.Errorf("look for races: %v", err)
		}
		if i := bytes.Index(text, []byte("WARNING: DATA RACE")); i >= 0 {
			e.t.Errorf("%s:\n%s", filepath.Base(path), text[i:min(len(text), i+most)])
		}
	}
}
