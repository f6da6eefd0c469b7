package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// results are the measured times of a run.
type results struct {
	commit, machine string
	sections        []*section
	// network is the time from kubectl apply to the Ready network of the tour, without a pod of provision-network.
	network time.Duration
}

// section is a table of times in seconds, with the load average of the machine before the first of them.
type section struct {
	title, head, load string
	rows              []string
}

var model = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

func newResults(t *testing.T, root string) *results {
	t.Helper()
	commit, err := exec.Command("git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	r := &results{commit: strings.TrimSpace(string(commit)), machine: fmt.Sprintf("%d cores", runtime.NumCPU())}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if found := model.FindSubmatch(info); found != nil {
			r.machine += " of " + string(found[1])
		}
	}
	return r
}

// table starts a section, whose rows head says.
func (r *results) table(title, head string) *section {
	s := &section{title: title, head: head, load: "unknown"}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		s.load, _, _ = strings.Cut(string(text), " ")
	}
	r.sections = append(r.sections, s)
	return s
}

// row adds a time to a section.
func (s *section) row(what string, took time.Duration) {
	s.rows = append(s.rows, fmt.Sprintf("| %s | %.1f |", what, took.Seconds()))
}

// markdown returns the page.
func (r *results) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Results\n\n`make test-node RESULTS=tests/node/RESULTS.md` writes this page, with times in seconds.\n\nCommit `%s` on %s, on %s.\n",
		r.commit, time.Now().UTC().Format(time.DateOnly), r.machine)
	if r.isBusy() {
		b.WriteString("\n> The machine was busy with other programs: see the load averages. A quiet one is faster.\n")
	}
	for _, s := range r.sections {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | seconds |\n| --- | ---: |\n%s\n\nLoad average before: %s.\n", s.title, s.head, strings.Join(s.rows, "\n"), s.load)
	}
	return b.String()
}

// isBusy reports whether the processors were busy before the first section, and so with other programs.
func (r *results) isBusy() bool {
	if len(r.sections) == 0 {
		return false
	}
	load, err := strconv.ParseFloat(r.sections[0].load, 64)
	return err == nil && load > float64(runtime.NumCPU())
}

// fileVariable names the environment variable with the file of the page.
const fileVariable = "VITI_NODE_RESULTS"

// isWritten reports whether the page is written into a file.
func (r *results) isWritten() bool { return os.Getenv(fileVariable) != "" }

// write prints the page, and writes it into the file, if there is one.
func (r *results) write(t *testing.T, root string) {
	t.Helper()
	t.Log("\n" + r.markdown())
	if !r.isWritten() {
		return
	}
	path := os.Getenv(fileVariable)
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	if err := os.WriteFile(path, []byte(r.markdown()), 0o600); err != nil {
		t.Error(err)
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	r := &results{commit: "abc", machine: "2 cores"}
	r.table("Faults", "killed").row("etcd", 2500*time.Millisecond)
	r.sections[0].load = "1000.5"
	for _, want := range []string{"> The machine was busy", "Commit `abc` on ", ", on 2 cores.\n", "## Faults\n\n| killed | seconds |\n", "| etcd | 2.5 |\n", "Load average before: "} {
		if !strings.Contains(r.markdown(), want) {
			t.Errorf("%q is missing in\n%s", want, r.markdown())
		}
	}
}
