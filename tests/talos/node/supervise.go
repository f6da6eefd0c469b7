package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/vitistack/stack/tests/stand/cgroup"
	"github.com/vitistack/stack/tests/stand/lab"
)

// restartPause is the time between a stop of machined and its next start.
const restartPause = time.Second

// supervise runs the node until SIGTERM. As a machine with power does, the node starts again when machined ends.
func (n node) supervise() error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	// The kernel kills the node when the thread that started it ends.
	runtime.LockOSThread()
	for {
		fmt.Println("=== power on", time.Now().Format(time.RFC3339Nano))
		ended, err := n.start()
		if err != nil {
			return err
		}
		var stopped bool
		select {
		case <-stop:
			stopped = true
			ended.kill()
			<-ended.done
		case <-ended.done:
		}
		fmt.Println("=== power off", time.Now().Format(time.RFC3339Nano), ended.command.ProcessState)
		if err := errors.Join(cgroup.Remove(n.cgroup()), n.disconnect()); err != nil {
			fmt.Println(err)
		}
		if stopped {
			return nil
		}
		select {
		case <-stop:
			return nil
		case <-time.After(restartPause):
		}
	}
}

// machine is a started node.
type machine struct {
	command *exec.Cmd
	done    chan struct{} // closed when no process of the node is left
}

func (m machine) kill() { _ = m.command.Process.Kill() }

// start starts process 1 of the node in its namespaces, and connects it to the bridge.
func (n node) start() (machine, error) {
	if err := cgroup.Create(n.cgroup()); err != nil {
		return machine{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return machine{}, err
	}
	command := exec.Command(self, "boot", n.id)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{
		// boot creates the cgroup namespace, because its root is the cgroup at that time.
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	connected, err := command.StdinPipe()
	if err != nil {
		return machine{}, err
	}
	if err := command.Start(); err != nil {
		return machine{}, fmt.Errorf("start the node: %w", err)
	}
	m := machine{command: command, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		// The end of process 1 is reported after that of all others in its PID namespace.
		_ = command.Wait()
	}()
	if err := n.connect(command.Process.Pid); err != nil {
		m.kill()
		<-m.done
		return machine{}, err
	}
	return m, connected.Close()
}

// port returns the name of the node's interface at the bridge.
func (n node) port() string { return fmt.Sprintf("node%08x", crc32.ChecksumIEEE([]byte(n.id))) }

// connect gives a process the interface eth0, whose other end is at the bridge.
func (n node) connect(pid int) error {
	for _, args := range []string{
		"link add " + n.port() + " type veth peer name eth0 netns " + strconv.Itoa(pid),
		"link set " + n.port() + " master " + lab.Bridge + " up",
	} {
		if err := lab.IP(args); err != nil {
			return err
		}
	}
	return nil
}

// disconnect deletes both interfaces. The kernel also deletes them with the network namespace of the ended process,
// but may need seconds for that.
func (n node) disconnect() error {
	if err := lab.IP("link delete " + n.port()); err != nil {
		if _, missing := net.InterfaceByName(n.port()); missing == nil {
			return err
		}
	}
	return nil
}
