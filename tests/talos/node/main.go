// Node runs a guest of the simulated KubeVirt as a Talos node: the real machined, as process 1 of its own PID, mount,
// network, UTS, IPC and cgroup namespaces.
//
//	node on ID         start the node, whose kubevirt.Guest is on the standard input as JSON
//	node off ID        stop the node, and keep its disk
//	node destroy ID    delete the disk of the stopped node
//
// VITI_LAB is a folder with the folder rootfs, which is the root file system of all nodes, and with a folder of each
// node in nodes. The network namespace in which the command runs has the bridge of package lab.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vitistack/stack/tests/sim/kubevirt"
	"github.com/vitistack/stack/tests/stand/lab"
)

// stopTimeout is the longest time that all processes of a node need to end after SIGKILL.
const stopTimeout = 20 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("write node on, off or destroy, and the ID of the guest")
	}
	folder := os.Getenv("VITI_LAB")
	if folder == "" {
		return errors.New("set VITI_LAB to the folder of the nodes and of their root file system")
	}
	n := node{id: strings.ToLower(args[1]), lab: folder}
	switch args[0] {
	case "on":
		return n.powerOn(os.Stdin)
	case "off":
		return n.powerOff()
	case "destroy":
		return n.destroy()
	case "supervise":
		return n.supervise()
	case "boot":
		return n.boot()
	default:
		return fmt.Errorf("there is no command %q: write on, off or destroy", args[0])
	}
}

// node is a guest with its folder.
type node struct{ id, lab string }

func (n node) path(elements ...string) string {
	return filepath.Join(append([]string{lab.Talos(n.lab).Nodes(), n.id}, elements...)...)
}

// cgroup returns the name of the node's cgroup.
func (n node) cgroup() string { return lab.Talos(n.lab).Cgroup(n.id) }

// powerOn starts the supervisor of the node in the background, unless it runs. A guest without a static address is
// left off, because the nodes have no DHCP server.
func (n node) powerOn(in io.Reader) error {
	description, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	guest, err := parseGuest(description)
	if err != nil || guest.address() == (netip.Prefix{}) {
		return err
	}
	if err := os.MkdirAll(n.path(), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(n.path("guest.json"), description, 0o600); err != nil {
		return err
	}
	lock, err := n.lock()
	if errors.Is(err, errRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	console, err := os.OpenFile(n.path("console.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(self, "supervise", n.id)
	command.Stdout, command.Stderr = console, console
	command.ExtraFiles = []*os.File{lock} // the supervisor keeps the lock until it ends
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	return os.WriteFile(n.path("supervisor.pid"), []byte(strconv.Itoa(command.Process.Pid)), 0o600)
}

// powerOff returns when no process of the node is left.
func (n node) powerOff() error {
	for end := time.Now().Add(stopTimeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		lock, err := n.lock()
		if err == nil {
			return lock.Close()
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil // it was never on
		}
		if !errors.Is(err, errRunning) {
			return err
		}
		text, err := os.ReadFile(n.path("supervisor.pid"))
		if err != nil {
			continue // it is starting
		}
		pid, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return fmt.Errorf("node %s still runs %s after SIGKILL", n.id, stopTimeout)
}

func (n node) destroy() error {
	if err := n.powerOff(); err != nil {
		return err
	}
	return os.RemoveAll(n.path())
}

// errRunning is the error of lock for a node whose supervisor runs.
var errRunning = errors.New("the node is running")

// lock returns the locked file that the supervisor of a node keeps open.
func (n node) lock() (*os.File, error) {
	file, err := os.OpenFile(n.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errRunning
	}
	return nil, err
}

// guest is a kubevirt.Guest with one interface.
type guest struct{ kubevirt.Guest }

func parseGuest(description []byte) (guest, error) {
	var g guest
	if err := json.Unmarshal(description, &g.Guest); err != nil {
		return g, fmt.Errorf("read the guest: %w", err)
	}
	if len(g.NICs) != 1 {
		return g, fmt.Errorf("guest %s has %d interfaces: a node has one", g.Name, len(g.NICs))
	}
	return g, nil
}

// address is zero if the guest has none yet.
func (g guest) address() netip.Prefix {
	if len(g.NICs[0].Addresses) == 0 {
		return netip.Prefix{}
	}
	return g.NICs[0].Addresses[0]
}

// seed returns the machine configuration in the seed of the guest, or an empty string. Talos ignores the user data of
// cloud-init.
func (g guest) seed() string {
	if text := strings.TrimSpace(g.UserData); text == "" || strings.HasPrefix(text, "#cloud-config") {
		return ""
	}
	return g.UserData
}
