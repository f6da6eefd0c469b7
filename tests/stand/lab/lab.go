// Package lab runs a program in PID, mount and network namespaces of its own, with a network for nodes. All that the
// program starts ends with it, also when it is killed, because the kernel ends a PID namespace with its process 1.
package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vitistack/stack/tests/stand/cgroup"
)

// The network of the nodes. The address of the lab in it is also the default route of the nodes.
const (
	Bridge  = "nodes"
	Network = "10.195.0.0/24"
	Gateway = "10.195.0.1"
)

// inside is an environment variable. Its value is init in process 1 of the lab, and program in the program.
const inside = "VITI_INSIDE_LAB"

// Lab is the place of one suite on this machine. Different labs run at the same time.
type Lab struct {
	// folder has the state of the lab, and what the lab removes.
	folder string
	// cgroups is the start of the name of each cgroup of the lab.
	cgroups string
}

// Talos returns the lab of the suite with nodes of Talos, in the folder of its build.sh.
func Talos(folder string) Lab { return Lab{folder, "viti-talos-"} }

// Node returns the lab of the suite with one node of Kubernetes, in the folder of its build.sh.
func Node(folder string) Lab { return Lab{folder, "viti-node-"} }

// KubeVirt returns the lab of the suite with KubeVirt on a node of Kubernetes, in the folder of its build.sh.
func KubeVirt(folder string) Lab { return Lab{folder, "viti-kubevirt-"} }

// Cgroup returns the name of the cgroup of a node.
func (l Lab) Cgroup(node string) string { return l.cgroups + node }

// Nodes returns the folder of the nodes. It does not exist when the lab starts.
func (l Lab) Nodes() string { return filepath.Join(l.folder, "nodes") }

// Main runs the tests of m, for example a *testing.M, in the lab, and returns the exit code for TestMain. Without a folder the
// suite was not requested: the tests run outside, and skip what needs the lab.
func (l Lab) Main(m interface{ Run() int }) int {
	code, err := 0, error(nil)
	switch {
	case l.folder == "" || os.Getenv(inside) == "program":
		return m.Run()
	case os.Getenv(inside) == "init":
		code, err = initialize()
	default:
		if err = check(); err == nil {
			code, err = l.run()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// check returns an error that says what this machine lacks to run a lab.
func check() error {
	if os.Geteuid() != 0 {
		return errors.New("the nodes need mounts, network namespaces and cgroups of this machine: run the test as root")
	}
	command := exec.Command("true")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | unix.CLONE_NEWCGROUP}
	if err := command.Run(); err != nil {
		return fmt.Errorf("this machine does not permit namespaces: %w; run the test on a machine, or in a container with --privileged", err)
	}
	for _, program := range []string{"ip", "runc", "nft", "iptables", "conntrack", "mount", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("find %s: %w; run tests/stand/kubernetes/packages.sh, which installs it", program, err)
		}
	}
	return nil
}

const namespaces = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET

// run runs this program again as process 1 of a lab, with the same arguments, and returns its exit code. It cleans up
// before and after.
func (l Lab) run() (int, error) {
	if err := l.Clean(); err != nil {
		return 1, fmt.Errorf("clean up after an earlier run: %w", err)
	}
	if err := errors.Join(saveSysctls(sysctlFile(l.folder)), os.Mkdir(l.temporary(), 0o700)); err != nil {
		return 1, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	command := exec.Command(self, os.Args[1:]...)
	command.Env = append(os.Environ(), inside+"=init", "TMPDIR="+l.temporary())
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	// The kernel kills the lab when the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err = command.Run()
	return command.ProcessState.ExitCode(), errors.Join(unlessExit(err), l.Clean())
}

// unlessExit returns nil for an error that the exit code of the program expresses.
func unlessExit(err error) error {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil
	}
	return err
}

// initialize is process 1 of the lab. It creates the network, runs this program once more with the same arguments, and
// returns its exit code. Until then it collects the processes that have lost their parent.
func initialize() (int, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return 1, err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return 1, fmt.Errorf("mount /proc of the lab: %w", err)
	}
	for _, args := range []string{
		"link set lo up", "link add " + Bridge + " type bridge", "address add " + Gateway + "/24 dev " + Bridge, "link set " + Bridge + " up",
	} {
		if err := IP(args); err != nil {
			return 1, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	if err := os.Setenv(inside, "program"); err != nil {
		return 1, err
	}
	program, err := os.StartProcess(self, os.Args, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 1, err
		}
		switch {
		case pid != program.Pid:
		case status.Exited():
			return status.ExitStatus(), nil
		case status.Signaled():
			return 1, fmt.Errorf("the program ended by signal %s", status.Signal())
		}
	}
}

// IP runs the command ip.
func IP(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return nil
}

// temporary is the folder for temporary files of the program.
func (l Lab) temporary() string { return filepath.Join(l.folder, "tmp") }

// Clean removes what a lab that has ended leaves on this machine: the cgroups and disks of nodes, temporary files, and
// sysctls that kubelets have changed. Everything else is in namespaces. It must not be called while the lab runs.
func (l Lab) Clean() error {
	return errors.Join(cgroup.Remove(l.cgroups+"*"), os.RemoveAll(l.Nodes()), os.RemoveAll(l.temporary()), restoreSysctls(sysctlFile(l.folder)))
}
