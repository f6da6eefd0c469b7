package talos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/apis/cluster/plan"
)

// ReadEtcd asks control planes, given by name and address, for their view of etcd. It omits
// control planes that do not answer in time, and returns an error if none answers.
func ReadEtcd(ctx context.Context, nodes map[string]string, a *Credentials) (plan.EtcdView, error) {
	v := plan.EtcdView{MemberIDs: map[string][]uint64{}, Leaders: map[string]bool{}}
	type answer struct {
		name    string
		members []plan.EtcdMember
		leads   bool
	}
	answers := make(chan answer, len(nodes))
	var group errgroup.Group
	group.SetLimit(plan.MaxConcurrentNodes)
	for name, address := range nodes {
		group.Go(func() error {
			members, leads, err := readMember(ctx, address, a)
			if err == nil {
				answers <- answer{name, members, leads}
			}
			return err
		})
	}
	err := group.Wait()
	close(answers)
	for got := range answers {
		v.Leaders[got.name] = got.leads
		v.MemberIDs[got.name] = []uint64{}
		for _, m := range got.members {
			v.MemberIDs[got.name] = append(v.MemberIDs[got.name], m.ID)
		}
		if v.Members == nil || got.leads {
			v.Members = got.members
		}
	}
	if len(v.MemberIDs) == 0 {
		return v, errors.Join(errors.New("no control plane answers about etcd"), err)
	}
	return v, nil
}

// readMember asks one control plane for the members of etcd, and whether its own member leads.
// It is an error if that does not run.
func readMember(ctx context.Context, address string, a *Credentials) ([]plan.EtcdMember, bool, error) {
	ctx, c, end, err := Connect(ctx, address, a, DialTimeout)
	if err != nil {
		return nil, false, err
	}
	defer end()
	if err := checkEtcdRuns(ctx, c, address); err != nil {
		return nil, false, err
	}
	status, err := c.EtcdStatus(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("read the status of etcd on %s: %w", address, err)
	}
	list, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: true})
	if err != nil {
		return nil, false, fmt.Errorf("list the members of etcd on %s: %w", address, err)
	}
	if len(status.GetMessages()) == 0 || len(list.GetMessages()) == 0 {
		return nil, false, fmt.Errorf("ask %s about etcd: the answer is empty", address)
	}
	own := status.Messages[0].GetMemberStatus()
	var members []plan.EtcdMember
	for _, m := range list.Messages[0].GetMembers() {
		members = append(members, plan.EtcdMember{ID: m.Id, Name: m.Hostname, PeerHost: hostOf(m.PeerUrls), Learner: m.IsLearner})
	}
	return members, own.GetLeader() != 0 && own.GetLeader() == own.GetMemberId(), nil
}

// checkEtcdRuns returns an error unless the service etcd of a control plane runs. Calls that
// etcd itself answers would wait for it until their deadline.
func checkEtcdRuns(ctx context.Context, c *client.Client, address string) error {
	info, err := c.ServiceInfo(ctx, "etcd")
	switch {
	case err != nil:
		return fmt.Errorf("read service etcd of %s: %w", address, err)
	case len(info) == 0:
		return fmt.Errorf("read service etcd of %s: there is none", address)
	case info[0].Service.GetState() != plan.EtcdRunning:
		return fmt.Errorf("etcd on %s is %s", address, info[0].Service.GetState())
	default:
		return nil
	}
}

func hostOf(urls []string) string {
	for _, text := range urls {
		if u, err := url.Parse(text); err == nil {
			return strings.Trim(u.Hostname(), "[]")
		}
	}
	return ""
}

// LeaveEtcd has a control plane leave etcd, after it has handed over the leadership if it leads.
func LeaveEtcd(ctx context.Context, address string, a *Credentials, leads bool) error {
	ctx, c, end, err := Connect(ctx, address, a, longTimeout)
	if err != nil {
		return err
	}
	defer end()
	if leads {
		if _, err := c.EtcdForfeitLeadership(ctx, &machine.EtcdForfeitLeadershipRequest{}); err != nil {
			return fmt.Errorf("hand over the leadership of etcd from %s: %w", address, err)
		}
	}
	if err := c.EtcdLeaveCluster(ctx, &machine.EtcdLeaveClusterRequest{}); err != nil {
		return fmt.Errorf("remove %s from etcd: %w", address, err)
	}
	return nil
}

// RemoveEtcdMember has one control plane remove another member of etcd.
func RemoveEtcdMember(ctx context.Context, address string, a *Credentials, id uint64) error {
	ctx, c, end, err := Connect(ctx, address, a, ShortTimeout)
	if err != nil {
		return err
	}
	defer end()
	if err := c.EtcdRemoveMemberByID(ctx, &machine.EtcdRemoveMemberByIDRequest{MemberId: id}); err != nil {
		return fmt.Errorf("remove member %x from etcd through %s: %w", id, address, err)
	}
	return nil
}

// ReadEtcdLeader asks one control plane whether it has no data of etcd, and otherwise whether
// its member knows a leader.
func ReadEtcdLeader(ctx context.Context, address string, a *Credentials) (empty, leader bool, err error) {
	ctx, c, end, err := Connect(ctx, address, a, DialTimeout)
	if err != nil {
		return false, false, err
	}
	defer end()
	service, err := etcdServiceOf(ctx, c, address)
	switch {
	case err != nil:
		return false, false, err
	case service.State == plan.EtcdPreparing && service.Empty:
		return true, false, nil
	case service.State != plan.EtcdRunning:
		return false, false, ErrEtcdNotRunning
	}
	status, err := c.EtcdStatus(ctx)
	if err != nil {
		return false, false, fmt.Errorf("read the status of etcd on %s: %w", address, err)
	}
	if len(status.GetMessages()) == 0 {
		return false, false, ErrEtcdNotRunning
	}
	return false, status.Messages[0].GetMemberStatus().GetLeader() != 0, nil
}

// ErrEtcdNotRunning is the error of a control plane whose member of etcd does not run.
var ErrEtcdNotRunning = errors.New("its etcd does not run")
