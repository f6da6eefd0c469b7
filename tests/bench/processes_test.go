package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/process"
)

// BenchmarkProcesses allocates addresses with several processes of each function, which share the
// events, and with a second event source, which duplicates them. It fails unless every address is
// unique, and all processes were used.
func BenchmarkProcesses(b *testing.B) {
	const n, atOnce = 400, 96
	for _, tc := range []struct{ processes, sources int }{{1, 1}, {2, 1}, {4, 1}, {8, 1}, {2, 2}} {
		b.Run(fmt.Sprintf("%d-from-%d", tc.processes, tc.sources), func(b *testing.B) {
			e := engine.Start(b, "--idle", "10m", "--processes", strconv.Itoa(tc.processes), "--concurrency", strconv.Itoa(atOnce/tc.processes))
			for range tc.sources - 1 {
				secondSources(b, e)
			}
			var walls []time.Duration
			for b.Loop() {
				namespace := fmt.Sprintf("burst-%d", len(walls))
				readyNetwork(b, e, namespace, len(walls))
				began := time.Now()
				burst(b, e, namespace, n)
				walls = append(walls, time.Since(began))
				distinct(b, e, namespace, n)
			}
			if took := processesOf(b, e, "allocate-ip"); took != tc.processes {
				b.Fatalf("%d processes of allocate-ip were used, not %d", took, tc.processes)
			}
			b.ReportMetric(float64(n)/median(walls).Seconds(), "addresses/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkSlowHypervisor creates Machines on a slow Proxmox VE, with several processes of each
// function and few concurrent deliveries in each.
func BenchmarkSlowHypervisor(b *testing.B) {
	const n, atOnce = 32, 2
	for _, processes := range []int{1, 2, 4, 8} {
		b.Run(strconv.Itoa(processes), func(b *testing.B) {
			e := engine.Start(b, "--idle", "10m", "--processes", strconv.Itoa(processes), "--concurrency", strconv.Itoa(atOnce))
			readyNetwork(b, e, "default", 0)
			e.UntilPhase(engine.MachineProviders, "", "proxmox", "Ready")
			e.SetFaults("proxmox", `[{"latency": "200ms"}]`)
			var walls []time.Duration
			for b.Loop() {
				walls = append(walls, runMachines(b, e, "proxmox", n*len(walls), n))
			}
			distinct(b, e, "default", n*len(walls))
			oneEach(b, e, manySites["Proxmox"], n*len(walls))
			b.ReportMetric(float64(n)/median(walls).Seconds(), "machines/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// processesOf returns the number of running processes of a function.
func processesOf(b *testing.B, e *engine.Engine, function string) (n int) {
	b.Helper()
	for _, p := range e.Report().Processes {
		if p.Name == function && p.PID != 0 {
			n++
		}
	}
	return n
}

// secondSources runs the engine's event sources a second time, so that every event is duplicated.
func secondSources(b *testing.B, e *engine.Engine) {
	b.Helper()
	for _, p := range e.Sources() {
		runAgain(b, e, p.Name, p.PID)
	}
}

// runAgain starts the program of an event source a second time, and waits until it watches.
func runAgain(b *testing.B, e *engine.Engine, name string, pid int) {
	b.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		b.Fatal(err)
	}
	env, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		b.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	command := exec.Command(args[0], args[1:]...)
	command.Env = strings.Split(strings.TrimSuffix(string(bytes.TrimSpace(env)), "\x00"), "\x00")
	command.Dir, command.ExtraFiles = e.Dir, []*os.File{write}
	second, err := process.Start(command, filepath.Join(e.Dir, "second-"+name+".log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(second.Kill)
	_ = write.Close()
	// It writes a byte once all of its watches are established.
	if _, err := read.Read(make([]byte, 1)); err != nil {
		b.Fatalf("the second %s does not start: %v", name, err)
	}
	_ = read.Close()
}
