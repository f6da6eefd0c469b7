package proxmox

import (
	"fmt"
	"strconv"
)

// ManageHA has high availability manage a machine, as ha-manager add does. The tasks that start and stop it then end with the request, and high
// availability does what they have requested after Times.HA (qemu-server, API2/Qemu.pm, vm_start, vm_stop, vm_shutdown).
func (s *Server) ManageHA(id int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[id]
	if m == nil {
		return fmt.Errorf("manage machine %d: there is none", id)
	}
	m.ha = true
	return nil
}

// Recover moves a machine off a host that is offline and starts it on another, as high availability does: the configuration moves
// as it is, so all volumes have to be on shared storage (pve-ha-manager, HA/Env/PVE2.pm, steal_service). If its start fails, it is off on the
// other host, and nothing starts it before DisableHA (HA/LRM.pm, resource_command; API2/HA/Resources.pm).
func (s *Server) Recover(id int, node string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.machines[id]
	if m == nil {
		return fmt.Errorf("recover machine %d: there is none", id)
	}
	if n, _ := s.host(m.Node); !n.Offline {
		return fmt.Errorf("recover machine %d: node %s answers", id, m.Node)
	}
	running := m.Running
	if err := s.stop(m); err != nil {
		return fmt.Errorf("recover machine %d: %w", id, err)
	}
	m.Node, m.ha = node, true
	if running {
		m.haFailed = s.start(&task{}, m) != nil
	}
	return nil
}

// requestHA starts the task that requests a start or a stop of a machine from high availability, and returns its UPID.
func (s *Server) requestHA(c *call, id int, kind, command string, work func(*machine) error) string {
	return s.fork(c, kind, strconv.Itoa(id), id, 0, func(t *task) error {
		m := s.machines[id]
		if m == nil {
			return fmt.Errorf("no such resource 'vm:%d'", id)
		}
		if m.haFailed {
			t.print("service 'vm:%d' in error state, must be disabled and fixed first", id)
			return fmt.Errorf("command '%s' failed: exit code 255", command)
		}
		s.later(s.options.Times.HA, func() {
			if m := s.machines[id]; m != nil {
				m.haFailed = work(m) != nil
			}
		})
		return nil
	})
}

// haView returns what high availability knows of a machine.
func (m *machine) haView() map[string]any {
	switch {
	case !m.ha:
		return map[string]any{"managed": 0}
	case m.haFailed:
		return map[string]any{"managed": 1, "state": "error"}
	case m.Running:
		return map[string]any{"managed": 1, "state": "started"}
	default:
		return map[string]any{"managed": 1, "state": "stopped"}
	}
}
