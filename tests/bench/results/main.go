// Results runs the benchmarks and writes their results into tests/bench/RESULTS.md. It stores the
// output of a benchmark for the commit, so that an interrupted run can continue.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// group is a set of benchmarks in the same run of go test.
type group struct {
	name, pattern, times string
	args                 []string
}

// stockMachines is the number of machines that exist already, at a load of 1. With twice as many, the API server needs
// more memory than a machine with 24 GB has beside the rest.
const stockMachines = 10000

// groups are in the order in which they run, the fastest first.
func groups(load string) []group {
	size, err := strconv.ParseFloat(load, 64)
	if err != nil {
		size = 1 // BenchmarkLoad refuses it
	}
	return []group{
		{"cold-start", "^BenchmarkColdStart$", "15x", nil},
		{"plugin", "^BenchmarkPlugin$", "15x", nil},
		{"cluster", "^BenchmarkSimpleCluster$", "5x", nil},
		{"idle", "^BenchmarkIdle$", "1x", nil},
		{"addresses", "^BenchmarkAddresses$", "2x", nil},
		{"address-requests", "^BenchmarkAddressRequests$", "1x", nil},
		{"machines", "^BenchmarkMachines$", "3x", nil},
		{"machine-requests", "^BenchmarkMachineRequests$", "1x", nil},
		{"faulty-hypervisor", "^BenchmarkHundredMachines$", "1x", nil},
		{"processes", "^BenchmarkProcesses$", "1x", nil},
		{"slow-hypervisor", "^BenchmarkSlowHypervisor$", "1x", nil},
		{"clusters", "^BenchmarkManyClusters$", "1x", nil},
		{"gateway", "^BenchmarkGateway", "3x", nil},
		{"stock", "^BenchmarkStock$", "1x", []string{"-stock", strconv.Itoa(int(stockMachines * size))}},
		{"load", "^BenchmarkLoad$", "1x", []string{"-load", load}},
	}
}

func main() {
	load := flag.String("load", "1", "size of the load: 1 is 1000 networks, 10000 addresses, 2000 machines and 200 clusters")
	only := flag.String("only", "", "measure only groups that this regular expression matches, and omit missing results")
	earlier := flag.String("earlier", "", "take what is missing from what was measured for this commit, by 12 letters, and say so")
	fresh := flag.Bool("fresh", false, "measure again what is measured already for this commit")
	flag.Parse()
	if err := run(context.Background(), *load, *only, *earlier, *fresh); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, load, only, earlier string, fresh bool) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("read -only: %w", err)
	}
	commit, err := output(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12")
	if err != nil {
		return err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the folder for what is measured: %w", err)
	}
	all := filepath.Join(cache, "vitistack", "bench")
	if err := os.MkdirAll(filepath.Join(all, commit), 0o755); err != nil {
		return err
	}
	r := &report{commit: commit, figures: map[string]figures{}}
	var failed []error
	for _, g := range groups(load) {
		name := g.name + strings.Join(g.args, "") + ".txt"
		path := filepath.Join(all, commit, name)
		if wanted.MatchString(g.name) && (fresh || !complete(path)) {
			// The results of the others are still useful.
			if err := measure(ctx, g, path); err != nil {
				failed = append(failed, fmt.Errorf("measure %s: %w", g.name, err))
			}
		}
		if text, err := os.ReadFile(path); err == nil {
			r.add(string(text), commit)
		} else if text, err := os.ReadFile(filepath.Join(all, earlier, name)); err == nil {
			r.add(string(text), earlier)
		}
	}
	if r.machine, err = describe(ctx); err != nil {
		return err
	}
	return errors.Join(append(failed, os.WriteFile("tests/bench/RESULTS.md", []byte(r.markdown()), 0o644))...)
}

const passed = "\nok  \t"

func complete(path string) bool {
	text, err := os.ReadFile(path)
	return err == nil && bytes.Contains(text, []byte(passed))
}

// measure runs the benchmarks of a group, and stores their output.
func measure(ctx context.Context, g group, path string) error {
	began := time.Now()
	fmt.Fprintf(os.Stderr, "%s  measuring %s ...\n", began.Format(time.TimeOnly), g.name)
	args := append([]string{"test", "-run", "^$", "-bench", g.pattern, "-benchtime", g.times, "-timeout", "30m", "./tests/bench"}, g.args...)
	command := exec.CommandContext(ctx, "go", args...)
	var text bytes.Buffer
	fmt.Fprintf(&text, "command: go %s\nload average: %s\n", strings.Join(args, " "), loadAverage())
	command.Stdout, command.Stderr = io.MultiWriter(&text, os.Stderr), os.Stderr
	err := command.Run()
	fmt.Fprintf(&text, "took: %s\n", time.Since(began).Round(time.Second))
	return errors.Join(err, os.WriteFile(path, text.Bytes(), 0o644))
}

// loadAverage returns the load average of the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// describe returns the machine and the versions.
func describe(ctx context.Context) ([]string, error) {
	cpu, _ := os.ReadFile("/proc/cpuinfo")
	model := regexp.MustCompile(`model name\s*: (.*)`).FindSubmatch(cpu)
	memory, _ := os.ReadFile("/proc/meminfo")
	total := regexp.MustCompile(`MemTotal:\s*(\d+ kB)`).FindSubmatch(memory)
	if model == nil || total == nil {
		return nil, errors.New("read /proc/cpuinfo and /proc/meminfo: this is not Linux")
	}
	version, err := output(ctx, "go", "version")
	if err != nil {
		return nil, err
	}
	kernel, err := output(ctx, "uname", "-sr")
	if err != nil {
		return nil, err
	}
	modules, err := output(ctx, "go", "-C", "knative/local", "list", "-m", "k8s.io/kubernetes", "go.etcd.io/etcd/server/v3", "knative.dev/eventing")
	if err != nil {
		return nil, err
	}
	lines := []string{
		fmt.Sprintf("%d cores of %s, %s of memory, %s", bytes.Count(cpu, []byte("processor\t:")), model[1], total[1], kernel),
		version,
	}
	return slices.Concat(lines, strings.Split(modules, "\n")), nil
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
