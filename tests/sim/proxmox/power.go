package proxmox

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// nodeReserve is the memory that a host reserves for itself.
const nodeReserve = 2 * gib

// memoryUsed returns the memory that a host and its running machines use. QEMU allocates the memory that the guest touches.
func (s *Server) memoryUsed(node string) int64 {
	used := nodeReserve
	for _, m := range s.machines {
		if m.Node == node && m.Running {
			used += m.memoryTouched()
		}
	}
	return used
}

// memoryTouched returns the memory that the guest of a running machine has touched: a quarter of what it has.
func (m *machine) memoryTouched() int64 { return m.Memory / 4 }

// cpuUsed returns the busy share of a host. Its guests use a quarter of their CPUs.
func (s *Server) cpuUsed(n Node) float64 {
	busy := 0.01
	for _, m := range s.machines {
		if m.Node == n.Name && m.Running {
			busy += float64(cpusOf(m.Config)) / 4 / float64(n.CPUs)
		}
	}
	return min(busy, 1)
}

// power is a method that starts or stops a machine.
func power(kind string, check func(*machine) error, work func(s *Server, t *task, m *machine, c *call) error) func(*call) (any, error) {
	return func(c *call) (any, error) {
		s, node, id := c.server, c.node.Name, c.id()
		m, err := c.machineOf()
		if err != nil {
			return nil, err
		}
		if c.params["skiplock"] != "" && c.user.user != "root@pam" {
			return nil, badParameter("skiplock", "Only root may use this option.")
		}
		if err := check(m); err != nil {
			return nil, die("%s", err)
		}
		switch {
		case m.ha && kind == "qmstart":
			return s.requestHA(c, id, "hastart", fmt.Sprintf("ha-manager set vm:%d --state started", id), func(m *machine) error {
				if m.Running {
					return nil
				}
				return s.start(&task{}, m)
			}), nil
		case m.ha && (kind == "qmstop" || kind == "qmshutdown"):
			return s.requestHA(c, id, "hastop", fmt.Sprintf("ha-manager crm-command stop vm:%d", id), s.stop), nil
		}
		return s.fork(c, kind, strconv.Itoa(id), id, 0, func(t *task) error {
			m, err := s.again(node, id)
			if err != nil {
				return err
			}
			if err := m.unlocked(); err != nil {
				return err
			}
			return work(s, t, m, c)
		}), nil
	}
}

func anyMachine(*machine) error { return nil }

func runningMachine(m *machine) error {
	if !m.Running {
		return fmt.Errorf("VM %d not running", m.ID)
	}
	return nil
}

var (
	startMachine = power("qmstart", anyMachine, func(s *Server, t *task, m *machine, _ *call) error {
		return s.start(t, m)
	})
	stopMachine  = power("qmstop", anyMachine, func(s *Server, _ *task, m *machine, _ *call) error { return s.stop(m) })
	resetMachine = power("qmreset", runningMachine, func(s *Server, t *task, m *machine, _ *call) error {
		return errors.Join(s.stop(m), s.start(t, m))
	})
	rebootMachine = power("qmreboot", runningMachine, func(s *Server, t *task, m *machine, _ *call) error {
		if m.deaf() {
			return fmt.Errorf("VM quit/powerdown failed - got timeout") //nolint:perfsprint // Proxmox VE's words
		}
		return errors.Join(s.stop(m), s.start(t, m))
	})
	shutdownMachine = power("qmshutdown", anyMachine, func(s *Server, _ *task, m *machine, c *call) error {
		if m.Running && m.deaf() && !c.flag("forceStop") {
			return fmt.Errorf("VM quit/powerdown failed - got timeout") //nolint:perfsprint // Proxmox VE's words
		}
		return s.stop(m)
	})
)

// deaf reports whether a guest ignores a shutdown because it has not booted yet, or does not execute.
func (m *machine) deaf() bool { return m.frozen != "" || (!m.booted && m.Config["acpi"] == "0") }

func (s *Server) start(t *task, m *machine) error {
	if m.template() {
		return fmt.Errorf("you can't start a vm if it's a template") //nolint:perfsprint // Proxmox VE's words
	}
	if m.Running {
		return fmt.Errorf("VM %d already running", m.ID)
	}
	m.applyPending()
	n, _ := s.host(m.Node)
	if int64(n.CPUs) < cpusOf(m.Config) {
		return fmt.Errorf("MAX %d vcpus allowed per VM on this node", n.CPUs)
	}
	if number64(m.Config, "vcpus", 0) > cpusOf(m.Config) {
		t.print("kvm: maxcpus must be equal to or greater than smp")
		return errors.New("start failed: QEMU exited with code 1")
	}
	if err := s.bridged(t, m); err != nil {
		return err
	}
	if err := s.checkSerials(t, m); err != nil {
		return err
	}
	if err := s.checkVolumes(m); err != nil {
		return err
	}
	guest := s.guestOf(m)
	if err := s.options.Guests.PowerOn(guest); err != nil {
		t.print("kvm: %s", err)
		return errors.New("start failed: QEMU exited with code 1")
	}
	m.frozen = ""
	m.Running, m.Since, m.Memory, m.guest, m.booted = true, time.Now(), memoryOf(m.Config), &guest, false
	m.Starts++
	s.nextPID++
	m.PID = s.nextPID
	s.boot(m)
	return nil
}

// boot lets the guest agent answer after the duration of the boot.
func (s *Server) boot(m *machine) {
	id, starts := m.ID, m.Starts
	up := func() {
		if m := s.machines[id]; m != nil && m.Running && m.Starts == starts {
			m.booted = true
		}
	}
	if s.options.Times.Boot == 0 {
		up()
		return
	}
	s.later(s.options.Times.Boot, up)
}

// bridged returns an error if the host lacks the bridge of an interface.
func (s *Server) bridged(t *task, m *machine) error {
	n, _ := s.host(m.Node)
	for _, nic := range nicsOf(m.Config) {
		found := nic.Bridge == ""
		for _, b := range n.Bridges {
			found = found || b == nic.Bridge
		}
		if !found {
			t.print("bridge '%s' does not exist", nic.Bridge)
			t.print("kvm: network script /usr/libexec/qemu-server/pve-bridge failed with status 512")
			return errors.New("start failed: QEMU exited with code 1")
		}
	}
	return nil
}

// checkSerials returns an error if the serial number of a SCSI disk is too long for QEMU. In Proxmox VE 8 it is the device ID too.
func (s *Server) checkSerials(t *task, m *machine) error {
	longest, use := 36, ""
	if s.major() < release9 {
		longest, use = 20, " when it is also used as the default for device_id"
	}
	for _, name := range drives(m.Config) {
		d, err := parseDrive(name, m.Config[name])
		if err == nil && strings.HasPrefix(name, "scsi") && len(d["serial"]) > longest {
			t.print("kvm: -device scsi-hd,id=%s: The serial number can't be longer than %d characters%s", name, longest, use)
			return errors.New("start failed: QEMU exited with code 1")
		}
	}
	return nil
}

// checkVolumes returns an error if a volume of a machine is not on its host, also that of a CD.
func (s *Server) checkVolumes(m *machine) error {
	for _, name := range drives(m.Config) {
		d, err := parseDrive(name, m.Config[name])
		if err != nil {
			return err
		}
		if d["file"] == "none" || d["file"] == "cdrom" {
			continue
		}
		if _, _, err := s.volume(d["file"], m.Node); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) stop(m *machine) error {
	if !m.Running {
		return nil
	}
	if err := s.options.Guests.PowerOff(guestID(m)); err != nil {
		return err
	}
	m.Running, m.booted, m.guest, m.PID, m.frozen = false, false, nil, 0, ""
	m.applyPending()
	return nil
}

func destroyMachine(c *call) (any, error) {
	s, node, id := c.server, c.node.Name, c.id()
	check := func(m *machine) error {
		if m.Config["protection"] == "1" {
			return fmt.Errorf("can't remove VM %d - protection mode enabled", id)
		}
		if m.ha && !c.flag("purge") {
			return fmt.Errorf("unable to remove VM %d - used in HA resources and purge parameter not set.", id) //nolint:revive,staticcheck // Proxmox VE's words
		}
		if m.Running {
			return fmt.Errorf("VM %d is running - destroy failed", id)
		}
		return nil
	}
	if c.params["skiplock"] != "" && c.user.user != "root@pam" {
		return nil, badParameter("skiplock", "Only root may use this option.")
	}
	m, err := c.machineOf()
	if err != nil {
		return nil, err
	}
	if err := check(m); err != nil {
		return nil, die("%s", err)
	}
	unreferenced := c.flag("destroy-unreferenced-disks")
	return s.fork(c, "qmdestroy", strconv.Itoa(id), id, 0, func(t *task) error {
		m, err := s.again(node, id)
		if err != nil {
			return err
		}
		if err := errors.Join(check(m), m.unlocked()); err != nil {
			return err
		}
		return s.destroy(t, m, unreferenced)
	}), nil
}

// Destroy destroys a machine as an administrator does on the web page.
func (s *Server) Destroy(id int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[id]
	if m == nil || m.Running {
		return fmt.Errorf("destroy machine %d: there is none that is off", id)
	}
	if err := m.unlocked(); err != nil {
		return fmt.Errorf("destroy machine %d: %w", id, err)
	}
	return s.destroy(&task{}, m, true)
}

// destroy deletes a machine with its disks. If unreferenced is set, it also deletes disks with its
// VMID that its configuration does not name. A disk that cannot be deleted stays.
func (s *Server) destroy(t *task, m *machine, unreferenced bool) error {
	if err := s.linked(m); err != nil {
		return err
	}
	if err := s.options.Guests.Destroy(guestID(m)); err != nil {
		return err
	}
	named := map[string]bool{}
	for _, name := range drives(m.Config) {
		if d, err := parseDrive(name, m.Config[name]); err == nil {
			named[d["file"]] = true
		}
	}
	for name, value := range m.Config {
		if driveName.MatchString(name) {
			continue
		}
		named[value] = true // unused0 and its like
	}
	for key, v := range s.volumes {
		if v.VMID == m.ID && (key.Node == "" || key.Node == m.Node) && (unreferenced || named[key.id()]) {
			if v.held {
				t.warn("Could not remove disk '%s', check manually: rbd rm '%s' error: rbd: error: image still has watchers", key.id(), key.Name)
				continue
			}
			delete(s.volumes, key)
		}
	}
	delete(s.machines, m.ID)
	return nil
}

// linked rejects the deletion of a template whose disks have linked clones.
func (s *Server) linked(m *machine) error {
	for _, name := range drives(m.Config) {
		d, err := parseDrive(name, m.Config[name])
		if err != nil {
			continue
		}
		for _, v := range s.volumes {
			if v.Parent == d["file"] {
				return fmt.Errorf("base volume '%s' is still in use by linked cloned", d["file"])
			}
		}
	}
	return nil
}
