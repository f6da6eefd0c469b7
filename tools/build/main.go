// Build builds Go programs and shows how far it is, which go build does not:
//
//	go run -trimpath -gcflags=all=-dwarf=false ./tools/build -title "the gateway" -o FOLDER/ ./gateway
//
// The programs are stripped, and have no paths of this machine in them. With RACE set they have the race detector. The flags of go run are those of
// the programs, so that the standard library is compiled once for both.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A build that takes longer than quiet prints a line then, and after each interval.
const (
	quiet    = 5 * time.Second
	interval = 10 * time.Second
)

func main() {
	title := flag.String("title", "the programs", "what is built, for people")
	folder := flag.String("C", ".", "folder of the module")
	output := flag.String("o", "", "program, or folder of programs with a / at its end")
	linker := flag.String("ldflags", "", "flags of the linker, beside those that strip")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	arguments, environment := settings(os.Environ(), *linker, os.Getenv("RACE") != "")
	b := &build{title: *title, folder: *folder, flags: arguments, environment: environment, packages: flag.Args(), out: os.Stderr, began: time.Now()}
	if err := b.run(ctx, *output); err != nil {
		fmt.Fprintf(os.Stderr, "Cannot build %s: %v\n", *title, err)
		os.Exit(1)
	}
}

// settings returns the flags and the environment of go build. The compiler writes no debugging information, because the linker would strip it. There are
// far more packages than processors, so each compiler has one thread and collects garbage only in packages that need 1 GiB. Compared with GOGC=400 this
// saves a seventh of its CPU. Variables in the environment take precedence.
func settings(environment []string, linker string, race bool) (flags, variables []string) {
	flags = []string{"-p", strconv.Itoa(runtime.GOMAXPROCS(0)), "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", strings.TrimSpace("-s -w " + linker)}
	variables = append([]string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=1GiB", "CGO_ENABLED=0"}, environment...)
	if race {
		return append(flags, "-race"), append(variables, "CGO_ENABLED=1")
	}
	return flags, variables
}

// build is one go build.
type build struct {
	title, folder                string
	flags, environment, packages []string
	out                          io.Writer
	began                        time.Time

	mu sync.Mutex
	progress
}

// progress is how far a build is.
type progress struct {
	// downloaded counts modules, and compiled packages. total is the number of packages to compile, or zero while it is not known.
	downloaded, compiled, total int
	// compiling is when the first package was compiled.
	compiling time.Time
}

// run builds, and prints lines about the progress of a build that takes long.
func (b *build) run(ctx context.Context, output string) error {
	cmd := b.command(ctx, "build", append([]string{"-v", "-o", output}, b.flags...))
	messages, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	var reports sync.WaitGroup
	reports.Go(func() { b.report(ctx, done) })
	for lines := bufio.NewScanner(messages); lines.Scan(); {
		b.read(lines.Text())
	}
	err = cmd.Wait()
	close(done)
	reports.Wait()
	if took := time.Since(b.began); err == nil && took > quiet {
		_, _ = fmt.Fprintf(b.out, "Built %s in %s.\n", b.title, took.Round(time.Second))
	}
	return err
}

func (b *build) command(ctx context.Context, verb string, arguments []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{verb}, arguments...), b.packages...)...)
	cmd.Dir, cmd.Env, cmd.Stdout = b.folder, b.environment, os.Stdout
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// read reads a line of go build -v: a module that is downloaded, a package that is compiled, or a message.
func (b *build) read(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		b.downloaded++
	case line != "" && !strings.ContainsAny(line, " :#\t"):
		if b.compiled++; b.compiled == 1 {
			b.compiling = time.Now()
		}
	default:
		_, _ = fmt.Fprintln(b.out, line)
	}
}

// report prints the progress until done.
func (b *build) report(ctx context.Context, done <-chan struct{}) {
	for wait := quiet; ; wait = interval {
		select {
		case <-done:
			return
		case <-time.After(wait):
		}
		b.mu.Lock()
		now := b.progress
		b.mu.Unlock()
		if now.compiled > 0 && now.total == 0 {
			now.total = b.count(ctx)
		}
		_, _ = fmt.Fprintf(b.out, "Building %s: %s\n", b.title, now.describe(time.Now()))
	}
}

// count returns the number of packages of the whole build, those that have been compiled included, and remembers it. It is zero if it
// cannot be found out.
func (b *build) count(ctx context.Context) int {
	cmd := b.command(ctx, "list", append([]string{"-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, b.flags...))
	cmd.Stdout = nil
	stale, err := cmd.Output()
	if err != nil {
		return 0 // go build says why
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total = b.compiled + len(strings.Fields(string(stale)))
	return b.total
}

// describe returns the progress at a time, for people. The time left assumes packages that cost alike. Downloads come before the first package, so their
// duration says nothing about it.
func (p progress) describe(now time.Time) string {
	switch {
	case p.compiled == 0 && p.downloaded == 0:
		return "checking what is built already"
	case p.compiled == 0:
		return fmt.Sprintf("%d modules downloaded", p.downloaded)
	case p.total <= 0:
		return fmt.Sprintf("%d packages", p.compiled)
	case p.compiled >= p.total:
		return fmt.Sprintf("%d of %d packages, linking", p.total, p.total)
	}
	left := time.Duration(float64(now.Sub(p.compiling)) / float64(p.compiled) * float64(p.total-p.compiled))
	return fmt.Sprintf("%d of %d packages (%d %%), about %s left", p.compiled, p.total, 100*p.compiled/p.total, left.Round(time.Second))
}
