package port

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// claimName is the address of the Unix socket by which a Port claims its number. It is in the abstract namespace, which belongs to the network
// namespace as ports do, and ends with the process (unix(7)).
func claimName(number int) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("@vitistack-port-%d", number)}
}

// Taken returns an error about a port on which another process listens, with that process if it is known.
func Taken(err error, number int) error { return taken(err, listener(number)) }

func taken(err error, pid int) error {
	if pid == 0 || !errors.Is(err, unix.EADDRINUSE) {
		return err
	}
	return fmt.Errorf("%w: process %d (%s) has it", err, pid, command(pid))
}

// claimant returns the process that keeps a port, or 0.
func claimant(number int) int {
	conn, err := net.DialUnix("unix", nil, claimName(number))
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(peer.Pid)
		}
	})
	return pid
}

// listener returns the process that listens on a port, or 0 if it is not known, as that of another user is not.
func listener(number int) int {
	sockets := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode := inodeOf(file, number); inode != "" {
			sockets["socket:["+inode+"]"] = true
		}
	}
	if len(sockets) == 0 {
		return 0
	}
	descriptors, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, path := range descriptors {
		if to, err := os.Readlink(path); err == nil && sockets[to] {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			return pid
		}
	}
	return 0
}

// inodeOf returns the inode of the socket that listens on a port, from /proc/net/tcp or tcp6 (proc_net(5)).
func inodeOf(file string, number int) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const listening = "0A"
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && fields[3] == listening && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", number)) {
			return fields[9]
		}
	}
	return ""
}

// command returns the command line of a process.
func command(pid int) string {
	const most = 100
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	text := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
	return text[:min(len(text), most)]
}
