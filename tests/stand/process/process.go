// Package process starts the servers that tests use.
package process

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// Process is a child that dies with the test binary, even if that is killed.
type Process struct {
	command *exec.Cmd
	log     string
	done    chan struct{}
}

// Start starts a command and appends its output to the file log.
func Start(command *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	command.Stdout, command.Stderr = out, out
	if command.SysProcAttr == nil {
		command.SysProcAttr = &syscall.SysProcAttr{}
	}
	command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p := &Process{command: command, log: log, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel signals a child when the thread that started it ends, so this thread runs until
		// the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		defer func() { _ = out.Close() }()
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait()
		}
	}()
	return p, <-started
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.command.Process.Kill()
	<-p.done
}

// Signal sends the process a signal.
func (p *Process) Signal(s syscall.Signal) error { return p.command.Process.Signal(s) }

// PID returns the process ID.
func (p *Process) PID() int { return p.command.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended returns nil while the process runs, and otherwise how it ended.
func (p *Process) Ended() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended: %s\n%s", strings.Join(p.command.Args[:min(2, len(p.command.Args))], " "), p.command.ProcessState, p.Tail())
	default:
		return nil
	}
}

// Tail returns the last lines of the process's output.
func (p *Process) Tail() string {
	const lines = 20
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
