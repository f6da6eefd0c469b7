package talos_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/tests/sim/talos"
)

// threeVoters starts a cluster of three control planes, which are all voters.
func threeVoters(t *testing.T, timing talos.Timing) (*rack, *client.Client) {
	t.Helper()
	r := newRack(t, "v1.13.9", timing)
	c := r.cluster(3, 0)
	r.voters(c, "cp-2", "cp-3", "cp-4")
	return r, c
}

func (r *rack) voters(c *client.Client, want ...string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%v vote", want), func(ctx context.Context) error {
		names, err := members(ctx, c)
		slices.Sort(names)
		if diff := cmp.Diff(want, names); err == nil && diff != "" {
			return errors.New(diff)
		}
		return err
	})
}

func memberID(t *testing.T, c *client.Client, name string) uint64 {
	t.Helper()
	resp, err := c.EtcdMemberList(t.Context(), &machineapi.EtcdMemberListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range resp.Messages[0].Members {
		if m.Hostname == name {
			return m.Id
		}
	}
	t.Fatalf("%s is no member", name)
	return 0
}

func TestJoiningMemberHasNoName(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{EtcdStart: 300 * time.Millisecond})
	c := r.cluster(1, 0)
	r.powerOn(3)
	r.apply(3, r.config(machine.TypeControlPlane, r.hostname("cp-3")))
	r.eventually("a learner without a name exists", func(ctx context.Context) error {
		resp, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
		if err != nil {
			return err
		}
		for _, m := range resp.Messages[0].Members {
			if m.Hostname == "" && m.IsLearner {
				return nil
			}
		}
		return errors.New("there is no learner")
	})
	r.voters(c, "cp-2", "cp-3")
}

func TestQuorumIsLost(t *testing.T) {
	t.Parallel()
	r, c := threeVoters(t, talos.Timing{})
	for _, n := range []int{3, 4} {
		if err := r.fleet.PowerOff(r.machine(n).ID); err != nil {
			t.Fatal(err)
		}
	}
	_, err := members(t.Context(), c)
	check(t, "members without a quorum", err, codes.Unknown)
	err = c.EtcdRemoveMemberByID(t.Context(), &machineapi.EtcdRemoveMemberByIDRequest{MemberId: 7})
	check(t, "a removal without a quorum", err, codes.Unknown)
	if _, err := readyNodes(t.Context(), r.kube()); err == nil {
		t.Error("Kubernetes answers without a quorum")
	}
	r.powerOn(4)
	r.voters(c, "cp-2", "cp-3", "cp-4")
	r.nodesReady(2)
}

func TestMemberLeaves(t *testing.T) {
	t.Parallel()
	r, c := threeVoters(t, talos.Timing{})
	leaving := r.client(4)
	if err := leaving.EtcdLeaveCluster(t.Context(), &machineapi.EtcdLeaveClusterRequest{}); err != nil {
		t.Fatal(err)
	}
	r.voters(c, "cp-2", "cp-3")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := leaving.EtcdStatus(ctx)
	check(t, "the status of a member that left", err, codes.DeadlineExceeded)
}

func TestMemberIsRemoved(t *testing.T) {
	t.Parallel()
	r, c := threeVoters(t, talos.Timing{})
	remove := func(id uint64) error {
		return c.EtcdRemoveMemberByID(t.Context(), &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
	}
	check(t, "an unknown member", remove(12345), codes.NotFound)
	if err := r.fleet.Destroy(r.machine(4).ID); err != nil {
		t.Fatal(err)
	}
	check(t, "a running member while another one is dead", remove(memberID(t, c, "cp-3")), codes.Unknown)

	// A replacement cannot join while the dead member is in the member list.
	r.ids[5] = ""
	r.powerOn(5)
	r.apply(5, r.config(machine.TypeControlPlane, r.hostname("cp-5")))
	r.up(5)
	r.voters(c, "cp-2", "cp-3", "cp-4")

	check(t, "the dead member", remove(memberID(t, c, "cp-4")), codes.OK)
	r.voters(c, "cp-2", "cp-3", "cp-5")
}

func TestLeadershipMoves(t *testing.T) {
	t.Parallel()
	r, c := threeVoters(t, talos.Timing{})
	leader := func() uint64 {
		resp, err := c.EtcdStatus(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Messages[0].MemberStatus.Leader
	}
	before := leader()
	resp, err := c.EtcdForfeitLeadership(t.Context(), &machineapi.EtcdForfeitLeadershipRequest{})
	if err != nil || resp.Messages[0].Member == "" {
		t.Fatalf("the leader forfeits: %v, %v", resp, err)
	}
	if got := leader(); got == before || got == 0 {
		t.Errorf("the leader is %x, as before", got)
	}
	if resp, err := c.EtcdForfeitLeadership(t.Context(), &machineapi.EtcdForfeitLeadershipRequest{}); err != nil || resp.Messages[0].Member != "" {
		t.Errorf("a follower forfeits: %v, %v", resp, err)
	}
	if alarms, err := r.client(3).EtcdAlarmList(t.Context()); err != nil || len(alarms.Messages[0].MemberAlarms) != 0 {
		t.Errorf("alarms: %v, %v", alarms, err)
	}
}

func TestSnapshotAndRecovery(t *testing.T) {
	t.Parallel()
	r := newRack(t, "v1.13.9", talos.Timing{})
	c := r.cluster(1, 0)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "precious"}}
	if _, err := r.kube().CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stream, err := c.EtcdSnapshot(t.Context(), &machineapi.EtcdSnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	if len(snapshot)%512 != sha256.Size {
		t.Fatalf("a snapshot of %d bytes has no hash", len(snapshot))
	}
	check(t, "a recovery into a running cluster", c.Bootstrap(t.Context(), &machineapi.BootstrapRequest{RecoverEtcd: true}), codes.AlreadyExists)
	before, err := bootID(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ResetGeneric(t.Context(), &machineapi.ResetRequest{
		Reboot: true, SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: "EPHEMERAL", Wipe: true}},
	}); err != nil {
		t.Fatal(err)
	}
	r.rebooted(c, before)
	r.eventually("the damaged snapshot is rejected", func(ctx context.Context) error {
		damaged := bytes.Clone(snapshot)
		damaged[len(damaged)-1]++
		if _, err := c.EtcdRecover(ctx, bytes.NewReader(damaged)); err != nil {
			return err
		}
		if err := c.Bootstrap(ctx, &machineapi.BootstrapRequest{RecoverEtcd: true}); client.StatusCode(err) != codes.Unknown {
			return fmt.Errorf("bootstrap answered %w", err)
		}
		return nil
	})
	if _, err := c.EtcdRecover(t.Context(), bytes.NewReader(snapshot)); err != nil {
		t.Fatal(err)
	}
	if err := c.Bootstrap(t.Context(), &machineapi.BootstrapRequest{RecoverEtcd: true}); err != nil {
		t.Fatal(err)
	}
	r.nodesReady(1)
	if _, err := r.kube().CoreV1().Namespaces().Get(t.Context(), "precious", metav1.GetOptions{}); err != nil {
		t.Errorf("the recovered cluster lost its objects: %v", err)
	}
}
