package talos_test

import (
	"context"
	"errors"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"

	"github.com/vitistack/stack/tests/sim/talos"
)

func (r *rack) inMaintenance(n int) {
	r.t.Helper()
	r.eventually("the machine is in maintenance", func(ctx context.Context) error {
		if got := r.probe(ctx, n); got != "maintenance" {
			return errors.New(got)
		}
		return nil
	})
}

func TestResetLeavesEtcd(t *testing.T) {
	t.Parallel()
	r, c := threeVoters(t, talos.Timing{})
	if err := r.client(4).Reset(t.Context(), true, true); err != nil {
		t.Fatal(err)
	}
	r.inMaintenance(4)
	r.voters(c, "cp-2", "cp-3")
	r.nodesReady(2)
	r.apply(4, r.config(machine.TypeControlPlane, r.hostname("cp-4")))
	r.voters(c, "cp-2", "cp-3", "cp-4")
	r.nodesReady(3)
}

func TestForcedResetLeavesTheMemberBehind(t *testing.T) {
	t.Parallel()
	r, c := threeVoters(t, talos.Timing{})
	if err := r.client(4).Reset(t.Context(), false, true); err != nil {
		t.Fatal(err)
	}
	r.inMaintenance(4)
	r.voters(c, "cp-2", "cp-3", "cp-4")
}

func TestLastMemberCannotLeave(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	c := r.cluster(1, 0)
	if err := c.Reset(t.Context(), true, true); err != nil {
		t.Fatal(err)
	}
	r.nodesReady(1) // it is acknowledged, and then fails
	if err := c.Reset(t.Context(), false, true); err != nil {
		t.Fatal(err)
	}
	r.inMaintenance(2)
	r.apply(2, r.config(machine.TypeControlPlane, r.hostname("again")))
	r.bootstrap(r.up(2))
	r.nodesReady(1)
	ready, err := readyNodes(t.Context(), r.kube())
	if err != nil || ready[0] != "again" {
		t.Errorf("the new cluster has old nodes: %v, %v", ready, err)
	}
}

func TestShutdownTellsTheHypervisor(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 1)
	worker := r.up(3)
	if err := worker.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if id := <-r.off; id != r.machine(3).ID {
		t.Errorf("machine %s switched off, want %s", id, r.machine(3).ID)
	}
	r.nodesReady(1)
	r.powerOn(3)
	r.up(3)
	r.nodesReady(2)
	if err := r.client(3).ResetGeneric(t.Context(), &machineapi.ResetRequest{Graceful: true}); err != nil {
		t.Fatal(err)
	}
	<-r.off // a reset without a reboot ends the same way
	r.powerOn(3)
	r.inMaintenance(3)
}

func TestResetIsChecked(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	c := r.cluster(1, 0)
	cases := map[string]struct {
		reason string
		req    *machineapi.ResetRequest
	}{
		"UnknownDisk":      {"a disk that does not exist", &machineapi.ResetRequest{UserDisksToWipe: []string{"/dev/sdz"}}},
		"SystemDisk":       {"the system disk is no user disk", &machineapi.ResetRequest{UserDisksToWipe: []string{"/dev/vda"}}},
		"Contradiction":    {"user disks in the wrong mode", &machineapi.ResetRequest{Mode: machineapi.ResetRequest_SYSTEM_DISK, UserDisksToWipe: []string{"/dev/vdb"}}},
		"UnknownPartition": {"a partition that does not exist", &machineapi.ResetRequest{SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "ROOT", Wipe: true}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, tc.reason, c.ResetGeneric(t.Context(), tc.req), codes.Unknown)
		})
	}
}

func TestDestroyForgets(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 0)
	if err := r.fleet.Destroy(r.machine(2).ID); err != nil {
		t.Fatal(err)
	}
	if err := r.fleet.Destroy(r.machine(2).ID); err != nil {
		t.Errorf("a second destruction: %v", err)
	}
	if err := r.fleet.PowerOff(r.machine(2).ID); !errors.Is(err, talos.ErrNoMachine) {
		t.Errorf("a destroyed machine can be switched on or off: %v", err)
	}
	r.powerOn(2)
	r.inMaintenance(2)
}
