package talos_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/vitistack/stack/tests/sim/talos"
)

// fleetDir makes the test binary run a fleet instead of tests, so that a test can kill it.
const fleetDir = "TALOS_FLEET_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(fleetDir); dir != "" {
		if err := serveFleet(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveFleet powers on the machines that it reads, one per line, until its input ends.
func serveFleet(dir string) error {
	f, err := talos.Open(dir, nil, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m talos.Machine
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return err
		}
		if err := f.PowerOn(context.Background(), m); err != nil {
			return err
		}
		fmt.Println("on")
	}
	return in.Err()
}

func TestKilledFleetLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), fleetDir+"="+r.dir)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	on := bufio.NewScanner(out)
	for _, n := range []int{2, 3} {
		if err := json.NewEncoder(in).Encode(r.machine(n)); err != nil {
			t.Fatal(err)
		}
		if !on.Scan() {
			t.Fatal("the fleet did not start")
		}
	}
	r.apply(2, r.config(machine.TypeControlPlane, r.hostname("cp-2")))
	r.bootstrap(r.up(2))
	r.nodesReady(1)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	if _, err := r.kube().CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.apply(3, r.config(machine.TypeWorker, r.hostname("worker-3"))) // killed before its installation
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed

	r.open()
	r.powerOn(2, 3)
	r.nodesReady(2)
	r.voters(r.up(2), "cp-2")
	if _, err := r.kube().CoreV1().Namespaces().Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("an object is lost: %v", err)
	}
}

func TestStateIsPrivate(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 1)
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == r.dir {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestPowerIsIdempotent(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.inMaintenance(2)
	r.powerOn(2)
	id := r.machine(2).ID
	for range 2 {
		if err := r.fleet.PowerOff(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.fleet.Reboot(id); err == nil {
		t.Error("a machine that is off rebooted")
	}
	r.powerOn(2)
	r.inMaintenance(2)
}

// TestConfiguredAddress powers a node off that has its configuration on its disk.
func TestConfiguredAddress(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		static bool
	}{
		"Static": {"the configuration has the address", true},
		"DHCP":   {"the configuration has none, so only the platform or DHCP knows it", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, "v1.13.9", talos.Timing{})
			m := r.machine(2)
			m.Kind, m.Preinstalled, m.Seed = "nocloud", true, r.config(machine.TypeControlPlane)
			if tc.static {
				m.Seed = fmt.Appendf(m.Seed, "\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: %s\naddresses: [{address: %s}]\n", m.Links[0].Name, m.Address)
			}
			if _, _, ok := r.fleet.ConfiguredAddress(m.ID); ok {
				t.Error("a machine that was never on has a configured address")
			}
			if err := r.fleet.PowerOn(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			r.eventually("the node has its configuration", func(ctx context.Context) error {
				if got := r.probe(ctx, 2); got != "ours" {
					return errors.New(got)
				}
				return nil
			})
			if err := r.fleet.PowerOff(m.ID); err != nil {
				t.Fatal(err)
			}
			address, _, ok := r.fleet.ConfiguredAddress(m.ID)
			if ok != tc.static || ok && address != m.Address {
				t.Errorf("%s: got %s, %t", tc.reason, address, ok)
			}
		})
	}
}

func TestMachinesAreChecked(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	cases := map[string]struct {
		reason string
		spoil  func(*talos.Machine)
	}{
		"ID":      {"no UUID", func(m *talos.Machine) { m.ID = "one" }},
		"Links":   {"no link", func(m *talos.Machine) { m.Links = nil }},
		"Version": {"a version that is not simulated", func(m *talos.Machine) { m.Version = "v1.9.0" }},
		"Kind":    {"no platform", func(m *talos.Machine) { m.Kind = "" }},
		"Address": {"no address", func(m *talos.Machine) { m.Address = netip.Prefix{} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := talos.Machine{
				ID: "7f1f5b0e-6f3c-4f0e-9a0d-0d5f3b8f2c11", Links: []talos.Link{{Name: "eth0", MAC: "02:00:00:00:00:01"}},
				Address: r.net.Address(50), Version: "v1.13.9", Kind: "metal",
			}
			tc.spoil(&m)
			if err := r.fleet.PowerOn(t.Context(), m); err == nil {
				t.Errorf("a machine with %s was powered on", tc.reason)
			}
		})
	}
}
