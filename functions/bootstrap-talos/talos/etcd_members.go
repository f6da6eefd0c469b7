package talos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
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

// RemoveEtcdMember has another control plane remove a member of etcd, first the leader. nodes are the addresses of the control
// planes by name, and view is what they have reported of etcd.
func RemoveEtcdMember(ctx context.Context, nodes map[string]string, a *Credentials, view plan.EtcdView, member plan.EtcdMember) error {
	peers := slices.Sorted(maps.Keys(view.MemberIDs))
	slices.SortStableFunc(peers, func(a, b string) int {
		return plan.CompareBool(view.Leaders[b], view.Leaders[a])
	})
	var problems []error
	for _, name := range peers {
		if name == member.Name {
			continue
		}
		err := removeMemberThrough(ctx, nodes[name], a, member.ID)
		if err == nil {
			return nil
		}
		problems = append(problems, err)
	}
	return errors.Join(append(problems, errors.New("no other member of etcd answers"))...)
}

// removeMemberThrough has one control plane remove another member of etcd.
func removeMemberThrough(ctx context.Context, address string, a *Credentials, id uint64) error {
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
