package talos_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/vitistack/stack/tests/sim/talos"
)

// TestSeed boots machines of nocloud with every kind of seed. The results are those of Talos 1.13.9's
// own code.
func TestSeed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, want string
		seed         func(r *rack) []byte
	}{
		"None":        {"there is no seed", "maintenance", func(*rack) []byte { return nil }},
		"Config":      {"a complete configuration is used", "ours", func(r *rack) []byte { return r.config(machine.TypeControlPlane) }},
		"Compressed":  {"gzip is read too", "ours", func(r *rack) []byte { return compressed(t, r.config(machine.TypeControlPlane)) }},
		"CloudConfig": {"the first line belongs to cloud-init", "maintenance", func(*rack) []byte { return []byte("#cloud-config\nusers: []\n") }},
		"Hostname": {"a single document is incomplete", "maintenance", func(*rack) []byte {
			return []byte("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a\nauto: off\n")
		}},
		"Empty":      {"an empty file is no configuration", "unreachable", func(*rack) []byte { return []byte("\n") }},
		"UnknownKey": {"an unknown key", "unreachable", func(*rack) []byte { return []byte("colour: red\n") }},
		"Invalid": {"an invalid configuration", "unreachable", func(r *rack) []byte {
			return bytes.Replace(r.config(machine.TypeControlPlane), []byte("endpoint: https://"), []byte("endpoint: ftp://"), 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, "v1.13.9", talos.Timing{})
			m := r.machine(2)
			m.Kind, m.Preinstalled, m.Seed = "nocloud", true, tc.seed(r)
			if err := r.fleet.PowerOn(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			r.eventually(tc.reason+": "+tc.want, func(ctx context.Context) error {
				if got := r.probe(ctx, 2); got[:min(len(got), len(tc.want))] != tc.want {
					return errors.New(got)
				}
				return nil
			})
		})
	}
}

// TestSeedIsReadOnce changes the seed of a configured machine. The configuration on its disk is used.
// With a new disk it reads the seed again.
func TestSeedIsReadOnce(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	m := r.machine(2)
	m.Kind, m.Preinstalled, m.Seed = "nocloud", true, r.config(machine.TypeControlPlane)
	start := func(want string) {
		t.Helper()
		if err := r.fleet.PowerOn(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		r.eventually("the machine is "+want, func(ctx context.Context) error {
			if got := r.probe(ctx, 2); got != want {
				return errors.New(got)
			}
			return nil
		})
		if err := r.fleet.PowerOff(m.ID); err != nil {
			t.Fatal(err)
		}
	}
	start("ours")
	m.Seed = []byte("#cloud-config\n")
	start("ours")
	if err := r.fleet.Destroy(m.ID); err != nil {
		t.Fatal(err)
	}
	start("maintenance")
}

func compressed(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
