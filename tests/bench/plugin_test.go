package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
)

// BenchmarkPlugin is kubectl viti from its start to its end, without a request to an API server.
func BenchmarkPlugin(b *testing.B) {
	engine.Build(b)
	program := filepath.Join(engine.Bin(b), "kubectl-viti")
	var walls []time.Duration
	for b.Loop() {
		began := time.Now()
		if out, err := exec.CommandContext(b.Context(), program, "version").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		walls = append(walls, time.Since(began))
	}
	info, err := os.Stat(program)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(milliseconds(median(walls)), "ms-start")
	b.ReportMetric(float64(info.Size())/1e6, "MB")
	b.ReportMetric(0, "ns/op")
}
