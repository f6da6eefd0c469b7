package kubevirt

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
)

//go:embed manifests/machine.yaml
var machineManifest string

// machineName is the name of the Machine, and of its VirtualMachine.
const machineName = "web"

// guestTimeout is the longest time until a guest has booted. Software emulation takes a minute and more.
const guestTimeout = 8 * time.Minute

// machine is a Machine of the stack, whose virtual machine runs on the node.
type machine struct {
	*env
	home string // the kubeconfig of the cluster of the Machine
}

// runMachine creates a Machine by the stack on the KubeVirt of the node, and follows its life.
func (e *env) runMachine() {
	e.prepareDisk(machineName)
	m := &machine{env: e, home: engine.Start(e.T).Kubeconfig()}
	e.Step("the stack runs on the local engine")
	m.inStack("", "create", "secret", "generic", "real", "-n", "vitistack-system", "--from-literal=kubeconfig="+e.Kubectl("config", "view", "--flatten", "--minify"))
	m.inStack(strings.NewReplacer("NETWORK", guestNetwork, "GATEWAY", guestGateway, "FIRST", guestFirst, "LAST", guestLast, "MACHINE", machineName).
		Replace(machineManifest), "apply", "--server-side", "-f", "-")

	m.awaitPhase("Running")
	e.Step("the Machine is Running: KubeVirt has started QEMU")
	m.requireEmulation()
	m.awaitAgent()
	e.Step("the guest's agent reports the address that the stack has allocated")
	first := m.awaitBoot("")
	e.Step("the guest answers at its address, with the user data of the Machine")

	m.requireSpoofCheck()
	e.Step("the bridge drops the frames of the guest with another MAC address")

	m.patch(`{"spec":{"restartToken":"again"}}`)
	second := m.awaitBoot(first)
	m.awaitPhase("Running")
	e.Step("a new restartToken restarts the guest")

	m.patch(`{"spec":{"powerState":"Stopped"}}`)
	m.awaitPhase("Stopped")
	e.Await("QEMU has ended", time.Minute, func(context.Context) error { return requireGuests(0) })
	e.Step("the Machine is Stopped, and QEMU has ended")
	m.patch(`{"spec":{"powerState":"Running"}}`)
	m.awaitBoot(second)
	m.awaitPhase("Running")
	m.awaitAgent()
	e.Step("the Machine runs again, with the same disk and address")

	m.inStack("", "delete", "machine", machineName, "--timeout=240s")
	e.Await("everything of the machine is deleted", 2*time.Minute, func(ctx context.Context) error {
		out, err := e.Run(ctx, "", "kubectl", "get", "vm,vmi,pvc,pods,secrets", "-n", "default", "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("these are left: %s", out)
		}
		return errors.Join(err, requireGuests(0))
	})
	e.Step("the Machine is deleted with everything that was created for it")
}

// inStack runs kubectl with the cluster of the Machine.
func (m *machine) inStack(input string, args ...string) {
	m.T.Helper()
	if _, err := m.Run(m.T.Context(), input, "kubectl", append([]string{"--kubeconfig", m.home}, args...)...); err != nil {
		m.T.Fatal(err)
	}
}

func (m *machine) patch(change string) {
	m.T.Helper()
	m.inStack("", "patch", "machine", machineName, "--type=merge", "-p", change)
}

// status is what the test reads of the Machine.
type status struct {
	Phase       string
	IPAddresses []string
	Conditions  []struct{ Type, Status, Reason, Message string }
}

func (m *machine) status(ctx context.Context) (status, error) {
	var object struct{ Status status }
	out, err := m.Run(ctx, "", "kubectl", "--kubeconfig", m.home, "get", "machine", machineName, "-o", "json")
	if err != nil {
		return status{}, err
	}
	err = json.Unmarshal([]byte(out), &object)
	return object.Status, err
}

func (m *machine) awaitPhase(phase string) {
	m.T.Helper()
	m.Await("the Machine is "+phase, guestTimeout, func(ctx context.Context) error {
		s, err := m.status(ctx)
		if err == nil && s.Phase != phase {
			err = fmt.Errorf("it is %s: %+v", s.Phase, s.Conditions)
		}
		return err
	})
}

// address returns the address that the stack has allocated.
func (m *machine) address(ctx context.Context) (string, error) {
	s, err := m.status(ctx)
	if err != nil {
		return "", err
	}
	if len(s.IPAddresses) != 1 || !strings.HasPrefix(s.IPAddresses[0], "10.198.0.") {
		return "", fmt.Errorf("the Machine has the addresses %v, want one of %s", s.IPAddresses, guestNetwork)
	}
	return s.IPAddresses[0], nil
}

// awaitAgent waits until the guest's agent, which only runs in a booted guest, reports the address of the Machine to KubeVirt.
func (m *machine) awaitAgent() {
	m.T.Helper()
	m.Await("the guest's agent reports its address", guestTimeout, func(ctx context.Context) error {
		want, err := m.address(ctx)
		if err != nil {
			return err
		}
		out, err := m.Run(ctx, "", "kubectl", "get", "vmi", machineName, "-n", "default", "-o", "json")
		if err != nil {
			return err
		}
		var instance struct {
			Status struct {
				Interfaces []struct {
					IPs        []string `json:"ipAddresses"`
					InfoSource string
				}
			}
		}
		if err := json.Unmarshal([]byte(out), &instance); err != nil {
			return err
		}
		for _, i := range instance.Status.Interfaces {
			if strings.Contains(i.InfoSource, "guest-agent") && slices.Contains(i.IPs, want) {
				return nil
			}
		}
		return fmt.Errorf("KubeVirt reports %+v, want %s", instance.Status.Interfaces, want)
	})
}

// awaitBoot waits until the guest answers with another boot than before, and returns that.
func (m *machine) awaitBoot(before string) (boot string) {
	m.T.Helper()
	client := &http.Client{Timeout: 10 * time.Second}
	m.Await("the guest answers after a boot", guestTimeout, func(ctx context.Context) error {
		address, err := m.address(ctx)
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/boot_id", nil)
		if err != nil {
			return err
		}
		res, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err == nil && (res.StatusCode != http.StatusOK || string(body) == before) {
			err = fmt.Errorf("it answers %s with the boot %q, before it was %q", res.Status, body, before)
		}
		boot = string(body)
		return err
	})
	return boot
}

// requireEmulation fails the test unless one guest runs, without the help of the processor.
func (m *machine) requireEmulation() {
	m.T.Helper()
	if err := requireGuests(1); err != nil {
		m.T.Fatal(err)
	}
	for _, args := range guests() {
		if !strings.Contains(args, "accel=tcg") && !strings.Contains(args, "-accel\x00tcg") {
			m.T.Errorf("QEMU does not emulate: %q", args)
		}
	}
}

// guests returns the arguments of each QEMU in the lab.
func guests() (all []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if program, _, _ := strings.Cut(string(text), "\x00"); err == nil && strings.HasPrefix(filepath.Base(program), "qemu-system-") && strings.Contains(string(text), "\x00-name\x00guest=") {
			all = append(all, string(text))
		}
	}
	return all
}

// requireGuests returns an error unless a number of guests runs.
func requireGuests(count int) error {
	if running := len(guests()); running != count {
		return fmt.Errorf("%d guests run, want %d", running, count)
	}
	return nil
}
