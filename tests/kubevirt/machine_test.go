package kubevirt

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

//go:embed manifests/machine.yaml
var machineManifest string

// machineName is the name of the Machine, and of its VirtualMachine.
const machineName = "web"

// guestTimeout is the longest time until a guest has booted. Software emulation takes a minute and more.
const guestTimeout = 8 * time.Minute

// machine is a Machine of the stack, whose virtual machine runs on the node.
type machine struct{ *stack }

// runMachine creates a Machine by the stack on the KubeVirt of the node, and follows its life.
func (e *env) runMachine() {
	m := &machine{e.startLocalEngine()}
	m.applyWith(machineManifest, "MACHINE", machineName, "IMAGES", imageServer)

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
	m.awaitDeleted("vm,vmi,dv,pvc,pods,secrets")
	e.Step("the Machine is deleted with everything that was created for it")
}

func (m *machine) patch(change string) {
	m.T.Helper()
	m.inStack("", "patch", "machine", machineName, "--type=merge", "-p", change)
}

func (m *machine) awaitPhase(phase string) {
	m.T.Helper()
	m.Await("the Machine is "+phase, guestTimeout, func(ctx context.Context) error {
		s, err := m.status(ctx, "machine/"+machineName)
		if err == nil && s.Phase != phase {
			err = fmt.Errorf("it is %s: %+v", s.Phase, s.Conditions)
		}
		return err
	})
}

// address returns the address that the stack has allocated.
func (m *machine) address(ctx context.Context) (string, error) {
	s, err := m.status(ctx, "machine/"+machineName)
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
