package kea

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/process"
)

// LAN is an Ethernet network: a DHCP server listens at one end, and the other end is the interface of a client
// in a network namespace of its own.
type LAN struct {
	// Interface is the name of the server's interface. Start serves clients on it with Options.Interface.
	Interface string
	// Gateway is the address of this interface, and Prefix is that of the network. Both are within 198.18.0.0/15, which
	// RFC 2544 reserves for tests.
	Gateway netip.Addr
	Prefix  netip.Prefix
	client  *process.Process
	script  string
}

// clientInterface is the name of the client's interface, which has its network namespace for itself.
const clientInterface = "eth0"

// lans counts the networks of this process.
var lans atomic.Int32

// NewLAN creates a network that exists until t ends. It skips t where this process may not create
// network namespaces, for example as a user other than root.
func NewLAN(t testing.TB) *LAN {
	t.Helper()
	dir := t.TempDir()
	command := exec.Command("sleep", "infinity")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	client, err := process.Start(command, filepath.Join(dir, "client.log"))
	if errors.Is(err, syscall.EPERM) {
		t.Skip("run this test as root, with the capability SYS_ADMIN: it creates a network namespace")
	}
	if err != nil {
		t.Fatalf("create a network namespace: %v", err)
	}
	t.Cleanup(client.Kill) // the interfaces end with the namespace
	n := lans.Add(1)
	const networks, perProcess = 512, 8
	i := (os.Getpid()*perProcess + int(n)) % networks
	l := &LAN{
		Interface: fmt.Sprintf("v%d-%d", os.Getpid(), n), client: client, script: filepath.Join(dir, "lease"),
		Gateway: netip.AddrFrom4([4]byte{198, byte(18 + i/256), byte(i % 256), 1}),
	}
	l.Prefix = netip.PrefixFrom(l.Gateway, 24).Masked()
	// The script gets the event as its argument, and the lease in variables.
	if err := os.WriteFile(l.script, []byte("#!/bin/sh\n[ \"$1\" != bound ] || echo \"$ip/$mask|$router|$dns\" >"+l.script+".txt\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"ip", "link", "add", l.Interface, "type", "veth", "peer", "name", clientInterface, "netns", strconv.Itoa(client.PID())},
		{"ip", "address", "add", netip.PrefixFrom(l.Gateway, l.Prefix.Bits()).String(), "dev", l.Interface},
		{"ip", "link", "set", l.Interface, "up"},
		{"nsenter", "--net=" + l.namespace(), "ip", "link", "set", clientInterface, "up"},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return l
}

func (l *LAN) namespace() string { return fmt.Sprintf("/proc/%d/ns/net", l.client.PID()) }

// Lease has a DHCP client with a MAC address request a lease: udhcpc of BusyBox, which broadcasts on the network as a
// guest does, and with its MAC address as its client identifier. It returns ErrNoOffer if no server answers.
func (l *LAN) Lease(ctx context.Context, mac string) (Offer, error) {
	return l.lease(ctx, mac)
}

// LeaseAs is Lease with a client identifier in hexadecimal digits, as operating systems have that identify themselves otherwise.
func (l *LAN) LeaseAs(ctx context.Context, mac, clientID string) (Offer, error) {
	return l.lease(ctx, mac, "--clientid-none", "-x", "0x3d:"+clientID)
}

func (l *LAN) lease(ctx context.Context, mac string, flags ...string) (Offer, error) {
	const tries = 8 // a busy machine answers late
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	lease := l.script + ".txt"
	if err := os.RemoveAll(lease); err != nil {
		return Offer{}, err
	}
	enter := "--net=" + l.namespace()
	if out, err := exec.CommandContext(ctx, "nsenter", enter, "ip", "link", "set", clientInterface, "address", mac).CombinedOutput(); err != nil {
		return Offer{}, fmt.Errorf("set the MAC address of the client: %w\n%s", err, out)
	}
	args := append([]string{enter, "udhcpc", "--interface", clientInterface, "--foreground", "--now", "--quit",
		"--retries", strconv.Itoa(tries), "--timeout", "1", "--script", l.script}, flags...)
	out, err := exec.CommandContext(ctx, "nsenter", args...).CombinedOutput()
	text, missing := os.ReadFile(lease)
	switch {
	case missing == nil:
		return parseLease(string(text))
	case ctx.Err() == nil && strings.Contains(string(out), "no lease"):
		return Offer{}, ErrNoOffer
	default:
		return Offer{}, fmt.Errorf("run udhcpc: %w\n%s", err, out)
	}
}

// parseLease reads a lease as the script writes it: address/length|routers|servers of DNS.
func parseLease(text string) (o Offer, err error) {
	parts := strings.Split(strings.TrimSpace(text), "|")
	prefix, err := netip.ParsePrefix(parts[0])
	if err != nil || len(parts) != 3 {
		return Offer{}, fmt.Errorf("read the lease %q: %w", text, err)
	}
	o.Address, o.Mask = prefix.Addr(), prefix.Bits()
	for i, into := range []*[]netip.Addr{&o.Routers, &o.DNS} {
		for _, field := range strings.Fields(parts[i+1]) {
			address, err := netip.ParseAddr(field)
			if err != nil {
				return Offer{}, fmt.Errorf("read the lease %q: %w", text, err)
			}
			*into = append(*into, address)
		}
	}
	return o, nil
}
