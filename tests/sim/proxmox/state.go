package proxmox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// saveDelay is how long changes are collected before they are saved.
const saveDelay = 100 * time.Millisecond

// kept is what survives a restart.
type kept struct {
	Machines []*machine
	Volumes  []keptVolume
	Pools    []string
	Tasks    []*task
	NextPID  int
	// Authority is absent in the state of an earlier release.
	Authority *authority
}

type keptVolume struct {
	Key    volumeKey
	Volume *volume
}

// save schedules a write of the state. Callers hold mu.
func (s *Server) save() {
	if s.options.State == "" || s.saving || s.closed {
		return
	}
	s.saving = true
	s.later(saveDelay, func() {
		s.saving = false
		if err := s.write(); err != nil {
			s.options.Log.Error("Cannot keep the state", "error", err)
		}
	})
}

// write writes the state. Callers hold mu.
func (s *Server) write() error {
	if s.options.State == "" {
		return nil
	}
	k := kept{NextPID: s.nextPID, Machines: sorted(s.machines), Authority: s.authority}
	for key, v := range s.volumes {
		k.Volumes = append(k.Volumes, keptVolume{key, v})
	}
	for pool := range s.pools {
		k.Pools = append(k.Pools, pool)
	}
	for _, t := range s.tasks {
		k.Tasks = append(k.Tasks, t)
	}
	data, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(s.options.State), 0o700); err != nil {
		return err
	}
	next := s.options.State + ".new"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	return os.Rename(next, s.options.State)
}

// restore loads the state of an earlier cluster, and starts the guests of its running machines.
// Incomplete machines are removed.
func (s *Server) restore() error {
	if s.options.State == "" {
		return nil
	}
	data, err := os.ReadFile(s.options.State)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read state: %w", err)
	}
	var k kept
	if err := json.Unmarshal(data, &k); err != nil {
		return fmt.Errorf("read state %s: %w", s.options.State, err)
	}
	s.nextPID, s.authority = max(s.nextPID, k.NextPID), k.Authority
	for _, v := range k.Volumes {
		s.volumes[v.Key] = v.Volume
	}
	for _, pool := range k.Pools {
		s.pools[pool] = true
	}
	for _, t := range k.Tasks {
		if t.Exit == "" {
			t.End, t.Exit = time.Now(), "received interrupt"
		}
		s.tasks[t.UPID] = t
	}
	for _, m := range k.Machines {
		if lock := m.Config["lock"]; lock == "create" || lock == "clone" {
			continue
		}
		s.machines[m.ID] = m
		if !m.Running {
			continue
		}
		guest := s.guestOf(m)
		if err := s.options.Guests.PowerOn(guest); err != nil {
			s.options.Log.Error("Cannot switch a guest on again", "machine", m.ID, "error", err)
			continue
		}
		m.guest = &guest
		s.boot(m)
	}
	return nil
}
