package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"

	"github.com/vitistack/stack/tests/sim/kubevirt"
)

// commandGuests runs the guests of KubeVirt by a program, so that a real operating system takes the
// place of a simulated node:
//
//	PROGRAM on ID        start the guest, whose kubevirt.Guest is on the standard input as JSON
//	PROGRAM off ID       stop the guest, and keep its disks
//	PROGRAM destroy ID   delete the disks of the stopped guest
//
// The rules of kubevirt.Guests hold for the program. It fails with an exit code other than 0 and a
// message on its standard output or error.
type commandGuests struct{ program string }

// PowerOn implements kubevirt.Guests.
func (g commandGuests) PowerOn(guest kubevirt.Guest) error {
	description, err := json.Marshal(guest)
	if err != nil {
		return err
	}
	return g.run(description, "on", guest.ID)
}

// PowerOff implements kubevirt.Guests.
func (g commandGuests) PowerOff(id string) error { return g.run(nil, "off", id) }

// Destroy implements kubevirt.Guests.
func (g commandGuests) Destroy(id string) error { return g.run(nil, "destroy", id) }

func (g commandGuests) run(in []byte, args ...string) error {
	command := exec.Command(g.program, args...)
	command.Stdin = bytes.NewReader(in)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s %s: %w: %s", g.program, args[0], args[1], err, bytes.TrimSpace(out))
	}
	return nil
}
