package talos_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/sim/talos"
)

func TestBootstrapHappensOnce(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2, 3)
	r.apply(2, r.config(machine.TypeControlPlane))
	r.apply(3, r.config(machine.TypeControlPlane))
	one, two := r.up(2), r.up(3)
	r.bootstrap(one)
	r.nodesReady(2)
	for name, c := range map[string]*client.Client{"the same node": one, "another node": two} {
		err := c.Bootstrap(t.Context(), &machineapi.BootstrapRequest{})
		check(t, "a second bootstrap of "+name, err, codes.AlreadyExists)
	}
}

func TestBootstrapLosesItsAcknowledgement(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"Unavailable", "reset"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, "v1.13.9", talos.Timing{})
			r.powerOn(2)
			r.apply(2, r.config(machine.TypeControlPlane))
			c := r.up(2)
			if err := r.plan.Set(faults.Rule{Operation: "MachineService/Bootstrap", Error: reason, After: true, Times: 1}); err != nil {
				t.Fatal(err)
			}
			check(t, "the lost acknowledgement", c.Bootstrap(t.Context(), &machineapi.BootstrapRequest{}), codes.Unavailable)
			r.nodesReady(1) // the request is carried out nevertheless
			check(t, "etcd runs", c.Bootstrap(t.Context(), &machineapi.BootstrapRequest{}), codes.AlreadyExists)
		})
	}
}

// TestBootstrapIsInMemory bootstraps a node whose image takes long to pull: the disk has no data of
// it, another request starts the pull again, and a power cut loses it.
func TestBootstrapIsInMemory(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{EtcdPull: time.Hour})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	c := r.up(2)
	for range 2 {
		r.eventually("the bootstrap is accepted", func(ctx context.Context) error { return c.Bootstrap(ctx, &machineapi.BootstrapRequest{}) })
	}
	if got := len(r.logged(c, "pulling the image of etcd")); got != 2 {
		t.Errorf("two requests have started %d pulls, want 2", got)
	}
	if got := etcdFiles(t, c); !slices.Equal(got, []string{"."}) {
		t.Errorf("/var/lib/etcd has %v while the image is pulled, want it empty", got)
	}
	if got := serviceState(t, c, "etcd"); got != "Preparing" {
		t.Errorf("etcd is %s while its image is pulled", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := c.EtcdStatus(ctx)
	check(t, "the status of etcd while its image is pulled", err, codes.DeadlineExceeded)
	if err := r.fleet.Reboot(r.ids[2]); err != nil {
		t.Fatal(err)
	}
	r.eventually("etcd waits for a bootstrap again", func(ctx context.Context) error {
		info, err := c.ServiceInfo(ctx, "etcd")
		if err == nil && (len(info) != 1 || info[0].Service.GetState() != "Preparing") {
			err = fmt.Errorf("etcd is %v", info)
		}
		return err
	})
	if got := r.logged(c, "bootstrap request received"); len(got) != 0 {
		t.Errorf("the node remembers %v", got)
	}
	if got := etcdFiles(t, c); !slices.Equal(got, []string{"."}) {
		t.Errorf("/var/lib/etcd has %v after the power cut", got)
	}
}

// logged returns the lines with these words in a node's kernel log since its boot.
func (r *rack) logged(c *client.Client, words string) (lines []string) {
	r.t.Helper()
	stream, err := c.Dmesg(r.t.Context(), false, false)
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		part, err := stream.Recv()
		if err != nil {
			return lines
		}
		if line := string(part.GetBytes()); strings.Contains(line, words) {
			lines = append(lines, line)
		}
	}
}

// etcdFiles returns the entries of etcd's data folder.
func etcdFiles(t *testing.T, c *client.Client) (names []string) {
	t.Helper()
	stream, err := c.LS(t.Context(), &machineapi.ListRequest{Root: "/var/lib/etcd"})
	if err != nil {
		t.Fatal(err)
	}
	for {
		entry, err := stream.Recv()
		if err != nil {
			return names
		}
		names = append(names, entry.GetRelativeName())
	}
}

func serviceState(t *testing.T, c *client.Client, id string) string {
	t.Helper()
	info, err := c.ServiceInfo(t.Context(), id)
	if err != nil || len(info) != 1 {
		t.Fatalf("service %s: %v, %v", id, info, err)
	}
	return info[0].Service.GetState()
}

func TestBootstrapIsRefused(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		version string
		kind    machine.Type
		timing  talos.Timing
		want    codes.Code
	}{
		"Early":    {"the container runtime is not up", "v1.13.9", machine.TypeControlPlane, talos.Timing{Services: time.Hour}, codes.FailedPrecondition},
		"Worker12": {"1.12 returns an error about the worker", "v1.12.4", machine.TypeWorker, talos.Timing{}, codes.FailedPrecondition},
		"Worker13": {"1.13 does not implement it on a worker", "v1.13.9", machine.TypeWorker, talos.Timing{}, codes.Unimplemented},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, tc.version, tc.timing)
			n := 2
			r.powerOn(2)
			r.apply(2, r.config(machine.TypeControlPlane))
			if tc.kind == machine.TypeWorker {
				n = 3
				r.powerOn(3)
				r.apply(3, r.config(tc.kind))
			}
			check(t, tc.reason, r.up(n).Bootstrap(t.Context(), &machineapi.BootstrapRequest{}), tc.want)
		})
	}
}

func TestEtcdIsSilentBeforeBootstrap(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	c := r.up(2)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := members(ctx, c)
	check(t, "members before etcd runs", err, codes.DeadlineExceeded)
}

func TestWorkersAreCertifiedByControlPlanes(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2, 3, 4)
	down := func(n int) func(context.Context) error {
		return func(ctx context.Context) error {
			conn, err := r.client(n).Version(ctx)
			if err == nil {
				t.Errorf("machine %d answers without a certificate: %v", n, conn)
			}
			return nil
		}
	}
	r.apply(3, r.config(machine.TypeWorker))
	r.eventually("the worker waits", down(3))
	r.apply(2, r.config(machine.TypeControlPlane))
	r.up(3)
	if got := r.probe(t.Context(), 3); got != "ours" {
		t.Errorf("the worker is %s", got)
	}
	r.apply(4, r.config(machine.TypeWorker, "machine:\n  token: abcdef.0123456789abcdef\n"))
	r.eventually("the worker with a wrong token gets no certificate", down(4))
}

func TestTrustdFaults(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	if err := r.plan.Set(faults.Rule{Operation: "trustd", Error: "Unavailable", Times: 2}); err != nil {
		t.Fatal(err)
	}
	r.powerOn(2, 3)
	r.apply(2, r.config(machine.TypeControlPlane))
	r.apply(3, r.config(machine.TypeWorker))
	r.up(3) // it retries until it gets an answer
}

func TestHandshakeFaults(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	r.up(2)
	cases := []struct {
		reason string
		rule   faults.Rule
		want   codes.Code
	}{
		{"a handshake that hangs", faults.Rule{Operation: "tls", Error: "hang"}, codes.DeadlineExceeded},
		{"a handshake that is slower than the client's timeout", faults.Rule{Operation: "tls", Latency: "10s"}, codes.DeadlineExceeded},
		{"a connection that is dropped", faults.Rule{Operation: "tls", Error: "broken"}, codes.Unavailable},
		{"without a fault", faults.Rule{Operation: "nothing"}, codes.OK},
	}
	for _, tc := range cases { // one after another, because there is one plan
		if err := r.plan.Set(tc.rule); err != nil {
			t.Fatal(err)
		}
		wait := patience
		if tc.want == codes.DeadlineExceeded {
			wait = 300 * time.Millisecond
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err := r.client(2).Version(ctx)
		check(t, tc.reason, err, tc.want)
		cancel()
	}
}
