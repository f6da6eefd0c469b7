package kea

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestOpen checks that the persistent state survives a crash and a restart of the program that opened
// it.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := func(s *Server) int {
		t.Helper()
		var c struct {
			Dhcp4 struct {
				Subnets []any `json:"subnet4"`
			}
		}
		if _, err := s.Command(t.Context(), "config-get", nil, &c); err != nil {
			t.Error(err)
		}
		return len(c.Dhcp4.Subnets)
	}
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if version, err := s.Version(t.Context()); err != nil || version == "" {
		t.Errorf("version %q, %v", version, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var c struct{ Dhcp4 map[string]any }
	_, err = s.Command(t.Context(), "config-get", nil, &c)
	c.Dhcp4["subnet4"] = []object{{"id": 1, "subnet": "10.0.0.0/24"}}
	for _, do := range []func() (int, error){
		func() (int, error) { return 0, err },
		func() (int, error) { return s.Command(t.Context(), "config-set", object{"Dhcp4": c.Dhcp4}, nil) },
		func() (int, error) { return s.Command(t.Context(), "config-write", nil, nil) },
	} {
		if result, err := do(); result != 0 || err != nil {
			t.Fatalf("result %d, %v", result, err)
		}
	}
	url, first := s.URL(), s.processes[0]
	go func() {
		s.Keep(ctx)
		close(ended)
	}()
	first.Kill()
	for {
		if result, err := s.Command(t.Context(), "list-commands", nil, nil); err == nil && result == 0 {
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatal("it is not restarted")
		case <-time.After(50 * time.Millisecond):
		}
	}
	if n := kept(s); n != 1 {
		t.Errorf("after a crash it has %d subnets, want 1", n)
	}
	stop()
	<-ended
	// The process of the earlier run is a zombie until its parent waits for it.
	if err := os.WriteFile(filepath.Join(dir, pidFile), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(again.Stop)
	if n := kept(again); n != 1 || again.URL() != url {
		t.Errorf("opened again it has %d subnets at %s, want 1 at %s", n, again.URL(), url)
	}
}
