package talos_test

import (
	"context"
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
			check(t, "the work is done all the same", c.Bootstrap(t.Context(), &machineapi.BootstrapRequest{}), codes.AlreadyExists)
			r.nodesReady(1)
		})
	}
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
		"Worker12": {"1.12 says what is wrong with a worker", "v1.12.4", machine.TypeWorker, talos.Timing{}, codes.FailedPrecondition},
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
	r.eventually("the worker with a wrong token stays out", down(4))
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
	r.up(3) // it asks until it is heard
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
		{"a handshake slower than the client waits", faults.Rule{Operation: "tls", Latency: "10s"}, codes.DeadlineExceeded},
		{"a connection that is dropped", faults.Rule{Operation: "tls", Error: "broken"}, codes.Unavailable},
		{"no fault any more", faults.Rule{Operation: "nothing"}, codes.OK},
	}
	for _, tc := range cases { // in turn, because the plan is one
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
