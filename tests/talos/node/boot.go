package main

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vitistack/stack/tests/stand/cgroup"
	"github.com/vitistack/stack/tests/stand/lab"
)

// boot is process 1 of a node until it becomes machined. It waits for the end of its standard input, which says that
// eth0 exists.
func (n node) boot() error {
	// The cgroup namespace belongs to this thread, and to the program that it becomes.
	runtime.LockOSThread()
	description, err := os.ReadFile(n.path("guest.json"))
	if err != nil {
		return err
	}
	g, err := parseGuest(description)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	root := n.path("root")
	for _, step := range []func() error{
		func() error { return cgroup.Enter(n.cgroup()) },
		func() error { return unix.Unshare(unix.CLONE_NEWCGROUP) },
		g.configureNetwork,
		func() error { return unix.Sethostname([]byte(g.Name)) },
		func() error { return n.mountRoot(root) },
		func() error { return g.writeHostFiles(root) },
		func() error { return enterRoot(root) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("boot node %s: %w", g.Name, err)
		}
	}
	// The platform "container" of Talos reads its configuration from USERDATA.
	env := []string{
		"PLATFORM=container", fmt.Sprintf("TALOSSKU=%dCPU-%dRAM", g.CPUs, g.Memory>>20), "VITI_SYSTEM_UUID=" + n.id,
	}
	if seed := g.seed(); seed != "" {
		env = append(env, "USERDATA="+base64.StdEncoding.EncodeToString([]byte(seed)))
	}
	return unix.Exec("/sbin/init", []string{"/sbin/init"}, env)
}

// configureNetwork configures eth0 as cloud-init's network data does on a virtual machine.
func (g guest) configureNetwork() error {
	nic := g.NICs[0]
	commands := []string{"link set lo up", "link set eth0 address " + nic.MAC, "link set eth0 up"}
	for _, address := range nic.Addresses {
		commands = append(commands, "address add "+address.String()+" dev eth0")
	}
	if nic.Gateway.IsValid() {
		commands = append(commands, "route add default via "+nic.Gateway.String())
	}
	for _, command := range commands {
		if err := lab.IP(command); err != nil {
			return err
		}
	}
	return nil
}

// persistent are the folders of a node that are on its disk, as on an installed Talos.
var persistent = []string{"var", "system/state", "etc/cni", "etc/kubernetes", "usr/libexec/kubernetes", "opt"}

// mountRoot mounts the root file system, which is new at each boot, with the disk of the node in it.
func (n node) mountRoot(root string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	upper, work := n.path("upper"), n.path("work")
	for _, folder := range []string{upper, work} {
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	for _, folder := range []string{root, upper, work} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", filepath.Join(n.lab, "rootfs"), upper, work)
	mounts := []mount{{"overlay", "", 0, options}, {"proc", "proc", 0, ""}, {"sysfs", "sys", unix.MS_RDONLY, ""}}
	for _, folder := range []string{"run", "system", "tmp"} {
		mounts = append(mounts, mount{"tmpfs", folder, 0, ""})
	}
	if err := mountAll(root, mounts); err != nil {
		return err
	}
	for _, step := range []func(string) error{mountDevices, mountCgroups, protectSysctls, n.mountDisk} {
		if err := step(root); err != nil {
			return err
		}
	}
	return nil
}

// mount is a file system of a type, at a folder below the root of the node.
type mount struct {
	kind, folder string
	flags        uintptr
	options      string
}

func mountAll(root string, mounts []mount) error {
	for _, m := range mounts {
		target := filepath.Join(root, m.folder)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, target, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s at /%s: %w", m.kind, m.folder, err)
		}
	}
	return nil
}

// mountDevices creates the devices that a container has, and /dev/kmsg and the TUN device, which Talos needs.
func mountDevices(root string) error {
	if err := mountAll(root, []mount{
		{"tmpfs", "dev", 0, "mode=755"}, {"devpts", "dev/pts", 0, "newinstance,ptmxmode=0666,mode=620"},
		{"tmpfs", "dev/shm", 0, ""}, {"mqueue", "dev/mqueue", 0, ""},
	}); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(root, "dev/net"), 0o755); err != nil {
		return err
	}
	for _, d := range []struct {
		name         string
		mode         uint32
		major, minor uint32
	}{
		{"null", 0o666, 1, 3}, {"zero", 0o666, 1, 5}, {"full", 0o666, 1, 7}, {"random", 0o666, 1, 8}, {"urandom", 0o666, 1, 9},
		{"kmsg", 0o644, 1, 11}, {"tty", 0o666, 5, 0}, {"console", 0o600, 5, 1}, {"net/tun", 0o666, 10, 200},
	} {
		path := filepath.Join(root, "dev", d.name)
		if err := unix.Mknod(path, unix.S_IFCHR|d.mode, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("create /dev/%s: %w", d.name, err)
		}
		if err := os.Chmod(path, os.FileMode(d.mode)); err != nil { // mknod applies the umask
			return err
		}
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(root, "dev", name)); err != nil {
			return err
		}
	}
	return nil
}

// mountCgroups mounts the hierarchies of the machine. The root of each is the node's cgroup.
func mountCgroups(root string) error {
	all, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	if all[0].Name == "" {
		return mountAll(root, []mount{{"cgroup2", cgroup.Root, 0, ""}})
	}
	mounts := []mount{{"tmpfs", cgroup.Root, 0, "mode=755"}}
	for _, h := range all {
		mounts = append(mounts, mount{"cgroup", h.Path(), 0, h.Name})
	}
	return mountAll(root, mounts)
}

// protectSysctls makes those sysctls read-only that belong to the machine and to no namespace. machined reports that,
// and continues. The kubelet has a /proc of its own, which lab.Clean takes into account.
func protectSysctls(root string) error {
	for _, name := range []string{"kernel", "vm", "fs"} {
		folder := filepath.Join(root, "proc/sys", name)
		if err := unix.Mount(folder, folder, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		if err := unix.Mount("", folder, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return err
		}
	}
	return nil
}

// mountDisk mounts the persistent folders. A folder of a new disk has the content of the root file system.
func (n node) mountDisk(root string) error {
	for _, name := range persistent {
		disk, target := n.path("disk", strings.ReplaceAll(name, "/", "-")), filepath.Join(root, name)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if _, err := os.Stat(disk); os.IsNotExist(err) {
			if err := os.MkdirAll(filepath.Dir(disk), 0o755); err != nil {
				return err
			}
			if err := os.CopyFS(disk, os.DirFS(target)); err != nil {
				return fmt.Errorf("fill the disk: %w", err)
			}
		}
		if err := os.MkdirAll(disk, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(disk, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount the disk at /%s: %w", name, err)
		}
	}
	return nil
}

// writeHostFiles writes the files from which the platform "container" of Talos reads the host name and the resolvers.
func (g guest) writeHostFiles(root string) error {
	files := map[string]string{"hostname": g.Name + "\n"}
	if gateway := g.NICs[0].Gateway; gateway.IsValid() {
		files["resolv.conf"] = "nameserver " + gateway.String() + "\n"
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// enterRoot makes root the root file system of this process, without any access to the one of the machine.
func enterRoot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("enter the root file system: %w", err)
	}
	// With equal arguments the old root is mounted on the new one, pivot_root(2).
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the root file system of the machine: %w", err)
	}
	return os.Chdir("/")
}
