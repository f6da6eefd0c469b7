package kubevirt

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	// libvirt is the address of libvirt in virt-launcher.
	libvirt = "qemu+unix:///session?socket=/var/run/libvirt/virtqemud-sock"
	// collector is where the node receives the datagrams of the guest.
	collector = guestGateway + ":9"
	// spoofedMAC is an address that no interface has.
	spoofedMAC = "02:00:00:00:00:99"
)

// requireSpoofCheck fails the test if a guest whose administrator changes its MAC address reaches the node. The same guest has
// to reach it with its own address, before and after.
func (m *machine) requireSpoofCheck() {
	m.T.Helper()
	received := make(chan string, 100)
	connection, err := net.ListenPacket("udp", collector)
	if err != nil {
		m.T.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	go func() {
		for buffer := make([]byte, 100); ; {
			size, _, err := connection.ReadFrom(buffer)
			if err != nil {
				return
			}
			received <- string(buffer[:size])
		}
	}()
	send := func(text string) string {
		return fmt.Sprintf(`python3 -c 'import socket, time
for _ in range(5):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"%s", ("%s", 9))
    time.sleep(1)'`, text, guestGateway)
	}
	m.execute(send("before"))
	m.execute("mac=$(cat /sys/class/net/eth0/address); ip link set eth0 address " + spoofedMAC + "; " + send("spoofed") + "; ip link set eth0 address $mac")
	m.execute(send("after"))
	counts := map[string]int{}
	for len(received) > 0 {
		counts[<-received]++
	}
	if counts["before"] == 0 || counts["after"] == 0 || counts["spoofed"] > 0 {
		m.T.Errorf("the node received %v datagrams, want some before and after, and none with another MAC address", counts)
	}
}

// execute runs a script in the guest by its agent, and waits for its end.
func (m *machine) execute(script string) {
	m.T.Helper()
	var started struct{ PID int }
	m.ask("guest-exec", map[string]any{"path": "/bin/sh", "arg": []string{"-c", script}, "capture-output": true}, &started)
	m.Await("a script in the guest ends", 2*time.Minute, func(context.Context) error {
		var status struct {
			Exited   bool
			ExitCode int    `json:"exitcode"`
			Problems []byte `json:"err-data"`
		}
		m.ask("guest-exec-status", map[string]any{"pid": started.PID}, &status)
		switch {
		case !status.Exited:
			return fmt.Errorf("it still runs: %s", script)
		case status.ExitCode != 0:
			m.T.Fatalf("%s: exit status %d: %s", script, status.ExitCode, status.Problems)
		}
		return nil
	})
}

// ask sends a command to the agent of the guest, and decodes its answer.
func (m *machine) ask(command string, arguments map[string]any, answer any) {
	m.T.Helper()
	request, err := json.Marshal(map[string]any{"execute": command, "arguments": arguments})
	if err != nil {
		m.T.Fatal(err)
	}
	pod := strings.TrimSpace(m.Kubectl("get", "pods", "-n", "default", "-l", "kubevirt.io=virt-launcher", "-o", "name"))
	out := m.Kubectl("exec", "-n", "default", pod, "-c", "compute", "--", "virsh", "-c", libvirt, "qemu-agent-command", "default_"+machineName, string(request))
	if err := json.Unmarshal([]byte(out), &struct{ Return any }{answer}); err != nil {
		m.T.Fatalf("the agent answers %q: %v", out, err)
	}
}
