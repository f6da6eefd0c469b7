package talos_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"github.com/vitistack/stack/tests/sim/talos"
)

func TestWatchFollowsTheMachine(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.powerOn(2)
	r.apply(2, r.config(machine.TypeControlPlane))
	c := r.up(2)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events := make(chan state.Event)
	r.eventually("the machine can be watched", func(context.Context) error {
		return c.COSI.Watch(ctx, runtime.NewMachineStatus().Metadata(), events)
	})
	bootstrapped := false
	for {
		select {
		case <-ctx.Done():
			t.Fatal("the machine never became ready")
		case e := <-events:
			if e.Type == state.Errored { // it rebooted in the meantime
				r.up(2)
				if err := c.COSI.Watch(ctx, runtime.NewMachineStatus().Metadata(), events); err != nil {
					t.Fatal(err)
				}
				continue
			}
			status, ok := e.Resource.(*runtime.MachineStatus)
			if !ok {
				continue
			}
			if s := status.TypedSpec(); s.Stage == runtime.MachineStageRunning && s.Status.Ready {
				return
			}
			if !bootstrapped {
				r.bootstrap(c)
				bootstrapped = true
			}
		}
	}
}

func TestEventsTellWhoAsked(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	c := r.cluster(1, 0)
	resp, err := c.MachineClient.Reset(t.Context(), &machineapi.ResetRequest{Graceful: true, Reboot: true})
	if err != nil {
		t.Fatal(err)
	}
	actor := resp.Messages[0].ActorId
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	found := errors.New("found")
	err = c.EventsWatch(ctx, func(events <-chan client.Event) {
		for e := range events {
			s, ok := e.Payload.(*machineapi.SequenceEvent)
			if ok && s.Error != nil && e.ActorID == actor && s.Sequence == "reset" {
				cancel() // the last member cannot leave, and the event reports that
				found = nil
			}
		}
	}, client.WithTailEvents(-1))
	if err != nil || found != nil {
		t.Errorf("the failed reset is not reported: %v, %v", err, found)
	}
}

func TestReadersSeeTheConsole(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	r.cluster(1, 0)
	c := r.client(2, role.Reader)
	if !strings.Contains(console(t, c), "machine is now running") {
		t.Error("the kernel log lacks the stage")
	}
	logs, err := c.Logs(t.Context(), "system", 0, "etcd", false, -1)
	if err != nil {
		t.Fatal(err)
	}
	if line, err := logs.Recv(); err != nil || !strings.Contains(string(line.Bytes), "etcd is running") {
		t.Errorf("etcd's log has %v, %v", line, err)
	}
	var names []string
	list, err := c.LS(t.Context(), &machineapi.ListRequest{Root: "/var/lib/etcd"})
	if err != nil {
		t.Fatal(err)
	}
	for {
		info, err := list.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.RelativeName)
	}
	if !slices.Contains(names, "member") {
		t.Errorf("etcd's directory has %v", names)
	}
}
