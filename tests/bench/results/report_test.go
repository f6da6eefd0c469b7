package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const printed = `command: go test -bench X
load average: 7.50
goos: linux
BenchmarkSimpleCluster-2   	       5	      1700 ms-running	       113.3 requests/machine	        46 create-vm-requests/machine	        67 bootstrap-talos-requests/machine	         3.5 create-vm:get:machines-requests/machine	        12 create-vm:all-deliveries/machine	         4 create-vm:idle-deliveries/machine	         1 create-vm:free-deliveries/machine	         2 create-vm:own-deliveries/machine
BenchmarkAddresses/1000-2   	       1	        61.25 addresses/s
BenchmarkAddresses/200-2   	       1	        58 addresses/s
PASS
ok  	github.com/vitistack/stack/tests/bench	25.950s
took: 26s
`

func TestReport(t *testing.T) {
	t.Parallel()
	r := &report{commit: "abc", machine: []string{"2 cores"}, figures: map[string]figures{}}
	r.add(printed, "abc")
	r.add("command: go test -bench Y\nload average: 1\ntook: 2s\n", "old")
	text := r.markdown()
	for reason, want := range map[string]string{
		"a single figure":                      "| apply to Running, median | 1700 ms |",
		"three digits":                         "| 1000 | 61.2 | – | – | – | – | – |",
		"the most expensive function is first": "| bootstrap-talos | 67 |\n| create-vm | 46 |",
		"a request by verb and resource":       "| create-vm | get | machines | 3.5 |",
		"deliveries by what they were for":     "| create-vm | 12 | 5 | 1 | 0 | 2 |",
		"sizes are sorted as numbers":          "| 200 | 58 | – | – | – | – | – |\n| 1000 |",
		"a missing figure is a dash":           "| requests to the API server a minute | – |",
		"times of a busy machine are marked":   "> The machine was busy: its load average was 7.5 before the first benchmark",
		"the command to repeat it":             "| `go test -bench X` | this | 7.50 | 26s |",
		"an older result has its commit":       "| `go test -bench Y` | `old` | 1 | 2s |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s: %q is not in\n%s", reason, want, text)
		}
	}
}

// TestEveryBenchmarkIsMeasured fails if make bench leaves out a benchmark, so that the page has a dash for its figures.
func TestEveryBenchmarkIsMeasured(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no benchmarks found: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`(?m)^func (Benchmark\w+)\(`).FindAllSubmatch(text, -1) {
			name := string(found[1])
			if !slices.ContainsFunc(groups("1"), func(g group) bool { return regexp.MustCompile(g.pattern).MatchString(name) }) {
				t.Errorf("%s of %s is in no group of make bench: add it to groups", name, file)
			}
		}
	}
}
