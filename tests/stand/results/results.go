// Package results writes the page with the times that a suite of tests has measured.
package results

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

// Page has the measured times of a run.
type Page struct {
	command, commit, machine string
	sections                 []*Section
}

// Section is a table of times in seconds or of counts, with the load average of the machine before the first of them.
type Section struct {
	title, head, unit, load string
	rows                    []string
}

var model = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)

// New returns an empty page of the suite that a command runs, such as "make test-node", in the repository at root.
func New(t *testing.T, root, command string) *Page {
	t.Helper()
	commit, err := exec.Command("git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	p := &Page{command: command, commit: strings.TrimSpace(string(commit)), machine: fmt.Sprintf("%d cores", runtime.NumCPU())}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if found := model.FindSubmatch(info); found != nil {
			p.machine += " of " + string(found[1])
		}
	}
	return p
}

// Table returns the section of times with a title, and starts it at the first call. head says what its rows are.
func (p *Page) Table(title, head string) *Section { return p.section(title, head, "seconds") }

// Counts returns the section of counts with a title, as Table does. unit says what is counted.
func (p *Page) Counts(title, head, unit string) *Section { return p.section(title, head, unit) }

func (p *Page) section(title, head, unit string) *Section {
	for _, s := range p.sections {
		if s.title == title {
			return s
		}
	}
	s := &Section{title: title, head: head, unit: unit, load: "unknown"}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		s.load, _, _ = strings.Cut(string(text), " ")
	}
	p.sections = append(p.sections, s)
	return s
}

// Row adds a time to a section.
func (s *Section) Row(what string, took time.Duration) {
	s.rows = append(s.rows, fmt.Sprintf("| %s | %.1f |", what, took.Seconds()))
}

// Count adds a count to a section.
func (s *Section) Count(what string, count int) {
	s.rows = append(s.rows, fmt.Sprintf("| %s | %d |", what, count))
}

// markdown returns the page.
func (p *Page) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Results\n\n`%s` writes this page, with times in seconds.\n\nCommit `%s` on %s, on %s.\n",
		p.command, p.commit, time.Now().UTC().Format(time.DateOnly), p.machine)
	if p.isBusy() {
		b.WriteString("\n> The machine was busy with other programs: see the load averages. A quiet one is faster.\n")
	}
	for _, s := range p.sections {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | %s |\n| --- | ---: |\n%s\n\nLoad average before: %s.\n", s.title, s.head, s.unit, strings.Join(s.rows, "\n"), s.load)
	}
	return b.String()
}

// isBusy reports whether the processors were busy before the first section, and so with other programs.
func (p *Page) isBusy() bool {
	if len(p.sections) == 0 {
		return false
	}
	load, err := strconv.ParseFloat(p.sections[0].load, 64)
	return err == nil && load > float64(runtime.NumCPU())
}

// fileVariable names the environment variable with the file of the page.
const fileVariable = "VITI_RESULTS"

// IsWritten reports whether the page is written into a file.
func IsWritten() bool { return os.Getenv(fileVariable) != "" }

// Write prints the page, and writes it into the file, if there is one. A relative path is below root.
func (p *Page) Write(t *testing.T, root string) {
	t.Helper()
	t.Log("\n" + p.markdown())
	if !IsWritten() {
		return
	}
	path := os.Getenv(fileVariable)
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	if err := os.WriteFile(path, []byte(p.markdown()), 0o600); err != nil {
		t.Error(err)
	}
}
