// Package process runs child processes: none outlives this process, the output of each is stored in a file of bounded size, and a Service is restarted
// when it dies.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// outputDelay is how long output is still read after a child has ended while a grandchild keeps its
// pipe open.
const outputDelay = time.Second

// Command is what to execute.
type Command struct {
	Path  string
	Args  []string // without the program's name
	Env   []string // the whole environment, KEY=VALUE
	Dir   string
	Files []*os.File // file descriptors 3 and up
}

// Spawner starts children from one operating system thread, which lives as long as this process. The kernel kills a child when the thread that forked it
// ends (PR_SET_PDEATHSIG), and Go ends threads at any time. With a dedicated thread, children end only with this process, also after kill -9.
type Spawner struct {
	requests chan request
}

type request struct {
	command *exec.Cmd
	result  chan error
}

// NewSpawner returns a Spawner whose thread ends with this process.
func NewSpawner() *Spawner {
	s := &Spawner{requests: make(chan request)}
	go func() {
		runtime.LockOSThread()
		for r := range s.requests {
			r.result <- r.command.Start()
		}
	}()
	return s
}

// Start executes the command in a process group of its own and copies its output to output.
func (s *Spawner) Start(command Command, output io.Writer) (*Process, error) {
	child := exec.CommandContext(context.Background(), command.Path, command.Args...) // it ends by a signal
	child.Env, child.Dir, child.ExtraFiles = command.Env, command.Dir, command.Files
	child.Stdout, child.Stderr = output, output
	child.WaitDelay = outputDelay
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	r := request{command: child, result: make(chan error, 1)}
	s.requests <- r
	if err := <-r.result; err != nil {
		return nil, fmt.Errorf("start %s: %w", command.Path, err)
	}
	p := &Process{pid: child.Process.Pid, started: time.Now(), done: make(chan struct{})}
	go func() {
		p.err = child.Wait()
		_ = syscall.Kill(-p.pid, syscall.SIGKILL) // its own children
		close(p.done)
	}()
	return p, nil
}

// Process is a child that was started.
type Process struct {
	pid     int
	started time.Time
	done    chan struct{}
	err     error
}

// PID returns the process id.
func (p *Process) PID() int { return p.pid }

// Done is closed when the process has ended and its output has been copied.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how the process ended: nil for exit status 0. It may be called after Done is closed.
func (p *Process) Err() error { return p.err }

// Signal sends a signal to the process. A process that has ended is not an error.
func (p *Process) Signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(p.pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to process %d: %w", signal, p.pid, err)
	}
	return nil
}

// Stop sends SIGTERM, and SIGKILL after grace, and returns when the process has ended.
func (p *Process) Stop(grace time.Duration) {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-time.After(grace):
	}
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}
