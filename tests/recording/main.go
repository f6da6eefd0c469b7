// Recording runs the commands of the README's demonstration on a running stack, and writes their output as an animated
// picture: one SVG without scripts, in which each line appears when the command has printed it.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// step is a command of the demonstration, with what it shows.
type step struct {
	about, command string
	// until ends the command as soon as a line of its output contains it. Without it, the command ends by itself.
	until string
}

// steps lead from an empty stack to a cluster in service.
var steps = []step{
	{about: "Declare a network, and a cluster with one control plane and two workers.", command: "kubectl apply -f apis/examples/tour-network.yaml -f apis/examples/simple-kubernetescluster.yaml"},
	{about: "Functions start, do their work, and scale to zero again.", command: "kubectl get machines --watch", until: "worker-pool-1-1 Running"},
	{about: "The cluster is in service.", command: "kubectl wait --for=condition=Ready kubernetescluster/simple-cluster --timeout=2m"},
	{about: "Everything that belongs to it:", command: "kubectl viti tree kubernetescluster/simple-cluster"},
	{about: "Use it.", command: "kubectl viti kubeconfig simple-cluster > simple-cluster.kubeconfig"},
	{command: "kubectl --kubeconfig simple-cluster.kubeconfig get nodes"},
}

func main() {
	to := flag.String("to", "docs/demo.svg", "`file` to write")
	flag.Parse()
	if err := record(context.Background(), *to); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// record runs the steps in the present folder, and writes the picture. It needs a stack without objects: make run TOUR=0.
func record(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var r recorder
	for _, s := range steps {
		if err := r.run(ctx, s); err != nil {
			return err
		}
	}
	return os.WriteFile(to, []byte(r.picture()), 0o644)
}

// line is a line of the terminal, and when it appears.
type line struct {
	at    time.Duration
	class string
	text  string
}

// The kinds of lines: a comment, a command and its output.
const (
	comment = "c"
	prompt  = "p"
	output  = "o"
)

// Pauses of the picture: before a command and after it, and at the end. longestPause is what is left of a longer pause
// between two lines of output.
const (
	readingPause = 2500 * time.Millisecond
	longestPause = 900 * time.Millisecond
	finalPause   = 8 * time.Second
)

// recorder is the terminal of the demonstration.
type recorder struct {
	lines []line
	clock time.Duration
}

func (r *recorder) add(class, text string) { r.lines = append(r.lines, line{r.clock, class, text}) }

// run runs a step in a shell, and records when each line is printed.
func (r *recorder) run(ctx context.Context, s step) error {
	if len(r.lines) > 0 {
		r.clock += readingPause
		r.add(output, "")
	}
	if s.about != "" {
		r.add(comment, "# "+s.about)
	}
	r.add(prompt, "$ "+s.command)
	r.clock += readingPause / 3
	command := exec.CommandContext(ctx, "sh", "-c", "exec 2>&1; "+s.command)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	found, err := r.read(out, s.until)
	if found {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGTERM)
	}
	if ended := command.Wait(); err == nil && !found {
		err = ended
	}
	if err == nil && s.until != "" && !found {
		err = fmt.Errorf("no line contains %q", s.until)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: start the stack with make run TOUR=0 on a clean state", s.command, err)
	}
	return nil
}

// read records lines until their end, or until one of them contains until. It reports whether one did.
func (r *recorder) read(out io.Reader, until string) (found bool, err error) {
	last := time.Now()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		now := time.Now()
		r.clock += min(now.Sub(last), longestPause)
		last = now
		r.add(output, lines.Text())
		fmt.Println(lines.Text())
		if until != "" && strings.Contains(strings.Join(strings.Fields(lines.Text()), " "), until) {
			return true, nil
		}
	}
	return false, lines.Err()
}
