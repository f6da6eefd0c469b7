package talos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/stack/tests/sim/talos/internal/etcd"
)

// withEtcd calls a function on the cluster's etcd with the fleet's lock. If no member answers it waits
// until the caller gives up, as a real node does. local requires the node's own member.
//
// A client gets an error of etcd as Unknown with etcd's text, because machined forwards etcd's errors
// without their code.
func (a *api) withEtcd(ctx context.Context, name string, local bool, work func(*cluster) error) error {
	b := a.boot
	for {
		unlock, err := b.accept()
		if err != nil {
			return err
		}
		if err := b.onlyControlPlane(name); err != nil {
			unlock()
			return err
		}
		c := b.node.cluster()
		if b.etcd == etcdUp || (!local && c != nil && len(c.live()) > 0) {
			defer unlock()
			term, index := c.Etcd.Term, c.Etcd.Index
			if err := work(c); err != nil {
				return err
			}
			if c.Etcd.Term != term || c.Etcd.Index != index {
				b.node.fleet.reconcile(c)
			}
			return nil
		}
		changed := b.node.fleet.changed
		unlock()
		select {
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-b.ctx.Done():
			return errRestarting
		case <-changed:
		}
	}
}

// EtcdMemberList lists the members of the cluster.
func (a *api) EtcdMemberList(ctx context.Context, in *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	list := &machineapi.EtcdMembers{}
	err := a.withEtcd(ctx, "member list", in.QueryLocal, func(c *cluster) error {
		if !c.quorum() {
			return etcd.ErrNoLeader
		}
		for _, m := range c.Etcd.Members {
			list.LegacyMembers = append(list.LegacyMembers, m.Name)
			member := &machineapi.EtcdMember{Id: m.ID, Hostname: m.Name, PeerUrls: []string{m.PeerURL}, IsLearner: m.Learner}
			if m.ClientURL != "" {
				member.ClientUrls = []string{m.ClientURL}
			}
			list.Members = append(list.Members, member)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{list}}, nil
}

// EtcdRemoveMemberByID removes any member from the cluster. A running member stops. Its data stays,
// and prevents it from joining again until it is wiped.
func (a *api) EtcdRemoveMemberByID(ctx context.Context, in *machineapi.EtcdRemoveMemberByIDRequest) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	err := a.withEtcd(ctx, "etcd remove member", false, func(c *cluster) error {
		err := c.Etcd.Remove(in.MemberId, c.live())
		switch {
		case errors.Is(err, etcd.ErrMemberNotFound):
			return status.Errorf(codes.NotFound, "failed to remove member %d: %v", in.MemberId, err)
		case err != nil:
			return fmt.Errorf("failed to remove member: failed to remove member %d: %w", in.MemberId, err)
		}
		for _, n := range c.controlPlanes() {
			if n.Etcd != nil && n.Etcd.Member == in.MemberId {
				n.boot.etcd = etcdStopped
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &machineapi.EtcdRemoveMemberByIDResponse{Messages: []*machineapi.EtcdRemoveMemberByID{{}}}, nil
}

// EtcdLeaveCluster removes the node's own member and empties its data directory.
func (a *api) EtcdLeaveCluster(ctx context.Context, _ *machineapi.EtcdLeaveClusterRequest) (*machineapi.EtcdLeaveClusterResponse, error) {
	err := a.withEtcd(ctx, "etcd leave", false, func(*cluster) error {
		if err := a.boot.leaveEtcd(); err != nil {
			return fmt.Errorf("failed to leave cluster: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &machineapi.EtcdLeaveClusterResponse{Messages: []*machineapi.EtcdLeaveCluster{{}}}, nil
}

// EtcdForfeitLeadership moves the leadership to another member.
func (a *api) EtcdForfeitLeadership(ctx context.Context, _ *machineapi.EtcdForfeitLeadershipRequest) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	leader := ""
	err := a.withEtcd(ctx, "etcd forfeit leadership", false, func(c *cluster) error {
		m, ok := c.memberOf(a.boot.node)
		if !ok {
			return errors.New("failed to forfeit leadership: the node is not a member")
		}
		var err error
		if leader, err = c.Etcd.Forfeit(m.ID, c.live()); err != nil {
			return fmt.Errorf("failed to forfeit leadership: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &machineapi.EtcdForfeitLeadershipResponse{Messages: []*machineapi.EtcdForfeitLeadership{{Member: leader}}}, nil
}

// EtcdStatus returns the status of the node's own member.
func (a *api) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	s := &machineapi.EtcdMemberStatus{ProtocolVersion: etcdVersion, StorageVersion: "3.6.0"}
	err := a.withEtcd(ctx, "etcd status", true, func(c *cluster) error {
		m, _ := c.memberOf(a.boot.node)
		s.MemberId, s.IsLearner, s.Leader = m.ID, m.Learner, c.Etcd.Leader
		s.RaftTerm, s.RaftIndex, s.RaftAppliedIndex = c.Etcd.Term, c.Etcd.Index, c.Etcd.Index
		s.DbSize, s.DbSizeInUse = databaseSize, databaseSize/2
		if !c.quorum() {
			s.Errors = []string{etcd.ErrNoLeader.Error()}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: s}}}, nil
}

// databaseSize is the size of a small cluster's etcd, in bytes.
const databaseSize = 8 << 20

// EtcdAlarmList returns an empty list.
func (a *api) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	if err := a.withEtcd(ctx, "etcd alarm list", true, func(*cluster) error { return nil }); err != nil {
		return nil, err
	}
	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{}}}, nil
}

// EtcdAlarmDisarm returns an empty list.
func (a *api) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmDisarmResponse, error) {
	if err := a.withEtcd(ctx, "etcd alarm disarm", true, func(*cluster) error { return nil }); err != nil {
		return nil, err
	}
	return &machineapi.EtcdAlarmDisarmResponse{Messages: []*machineapi.EtcdAlarmDisarm{{}}}, nil
}

// EtcdDefragment does nothing.
func (a *api) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdDefragmentResponse, error) {
	if err := a.withEtcd(ctx, "etcd defragment", true, func(*cluster) error { return nil }); err != nil {
		return nil, err
	}
	return &machineapi.EtcdDefragmentResponse{Messages: []*machineapi.EtcdDefragment{{}}}, nil
}

// chunk is the size of one message of a stream.
const chunk = 32 << 10

// EtcdSnapshot streams a snapshot of the cluster's objects. If etcd does not run it ends at the
// deadline without an error and without data, as was measured with Talos 1.13.
func (a *api) EtcdSnapshot(_ *machineapi.EtcdSnapshotRequest, out grpc.ServerStreamingServer[common.Data]) error {
	var data []byte
	err := a.withEtcd(out.Context(), "etcd snapshot", true, func(c *cluster) error {
		items, err := c.workload.Export()
		if err != nil {
			return err
		}
		data, err = writeSnapshot(c.fleet.disk.clusters(), items)
		return err
	})
	if status.Code(err) == codes.DeadlineExceeded {
		return nil
	}
	if err != nil {
		return err
	}
	return sendData(out, data)
}

func sendData(out grpc.ServerStreamingServer[common.Data], data []byte) error {
	for len(data) > 0 {
		part := data[:min(chunk, len(data))]
		data = data[len(part):]
		if err := out.Send(&common.Data{Bytes: part}); err != nil {
			return err
		}
	}
	return nil
}

// EtcdRecover stores a snapshot, from which a bootstrap can recover.
func (a *api) EtcdRecover(in grpc.ClientStreamingServer[common.Data, machineapi.EtcdRecoverResponse]) error {
	b := a.boot
	unlock, err := b.accept()
	if err != nil {
		return err
	}
	ready, refused := b.services, b.onlyControlPlane("etcd recover")
	unlock()
	switch {
	case !ready:
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	case refused != nil:
		return refused
	}
	var snapshot bytes.Buffer
	for {
		part, err := in.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		snapshot.Write(part.Bytes)
	}
	if unlock, err = b.accept(); err != nil {
		return err
	}
	b.node.Recovery = snapshot.Bytes()
	err = b.node.save()
	unlock()
	if err != nil {
		return err
	}
	return in.SendAndClose(&machineapi.EtcdRecoverResponse{Messages: []*machineapi.EtcdRecover{{}}})
}

// recover reads an uploaded snapshot, and returns a function that replaces the cluster's objects by
// those in it.
func (c *cluster) recover(n *node, skipHash bool) (restore func() error, err error) {
	if n.Recovery == nil {
		return nil, errors.New("error verifying snapshot: stat /var/lib/etcd.snapshot: no such file or directory")
	}
	items, err := readSnapshot(c.fleet.disk.clusters(), n.Recovery, skipHash)
	if err != nil {
		return nil, fmt.Errorf("error recovering from the snapshot: %w", err)
	}
	return func() error { return c.workload.Import(items) }, nil
}
