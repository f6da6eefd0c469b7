package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"golang.org/x/sync/errgroup"
)

// etcdMember is one entry of etcd's member list.
type etcdMember struct {
	id uint64
	// name is empty until the member has started for the first time.
	name string
	// host is the address at which other members reach it.
	host    string
	learner bool
}

// etcdView is what the control planes of a cluster say of its etcd.
type etcdView struct {
	// members is the list that the leader has.
	members []etcdMember
	// lists are the members' IDs as each control plane that answers has them, and
	// leads tells which of them leads, by the names of their Machines.
	lists map[string][]uint64
	leads map[string]bool
}

// of is the member of a machine, by its name or, before it has started, its
// address.
func (v etcdView) of(name, address string) (etcdMember, bool) {
	i := slices.IndexFunc(v.members, func(m etcdMember) bool { return m.name == name })
	if i < 0 && address != "" {
		i = slices.IndexFunc(v.members, func(m etcdMember) bool { return m.name == "" && m.host == address })
	}
	if i < 0 {
		return etcdMember{}, false
	}
	return v.members[i], true
}

// agreed tells whether all control planes that answer have the same list.
func (v etcdView) agreed() bool {
	var ids []uint64
	for _, m := range v.members {
		ids = append(ids, m.id)
	}
	slices.Sort(ids)
	for _, list := range v.lists {
		if !slices.Equal(slices.Sorted(slices.Values(list)), ids) {
			return false
		}
	}
	return true
}

// voters counts the members that vote, and those of them that answer.
func (v etcdView) voters() (n, answering int) {
	for _, m := range v.members {
		if m.learner {
			continue
		}
		n++
		if _, ok := v.lists[m.name]; ok {
			answering++
		}
	}
	return n, answering
}

// mayLeave decides whether a member can be taken out of etcd without those that
// remain losing their majority. It returns why not, or nothing.
//
//	the last voter                                 never
//	no majority answers now                        no: etcd takes no change
//	a learner, or one that does not answer         yes: nobody counts on it
//	those that remain and answer are a majority    yes
func mayLeave(v etcdView, m etcdMember) string {
	voters, answering := v.voters()
	_, counted := v.lists[m.name]
	switch {
	case answering <= voters/2:
		return fmt.Sprintf("%d of %d members of etcd answer, which is no majority: bring one back, or restore a backup", answering, voters)
	case m.learner:
		return ""
	case voters == 1:
		return "it is the last member of etcd"
	case counted && answering-1 <= (voters-1)/2:
		return fmt.Sprintf("only %d of %d members of etcd answer, and without it no majority would: bring one back first", answering, voters)
	default:
		return ""
	}
}

// forsaken are members that no machine stands behind. One without a name is about
// to join.
func forsaken(members []etcdMember, exists func(name string) bool) []etcdMember {
	return slices.DeleteFunc(slices.Clone(members), func(m etcdMember) bool { return m.name == "" || exists(m.name) })
}

// askEtcd asks control planes, by name and address, for their view of etcd. Those
// that don't answer in time are left out.
func askEtcd(ctx context.Context, nodes map[string]string, a *access) (etcdView, error) {
	v := etcdView{lists: map[string][]uint64{}, leads: map[string]bool{}}
	type answer struct {
		name    string
		members []etcdMember
		leads   bool
	}
	answers := make(chan answer, len(nodes))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for name, address := range nodes {
		group.Go(func() error {
			members, leads, err := etcdOf(ctx, address, a)
			if err == nil {
				answers <- answer{name, members, leads}
			}
			return err
		})
	}
	err := group.Wait()
	close(answers)
	for got := range answers {
		v.leads[got.name] = got.leads
		v.lists[got.name] = []uint64{}
		for _, m := range got.members {
			v.lists[got.name] = append(v.lists[got.name], m.id)
		}
		if v.members == nil || got.leads {
			v.members = got.members
		}
	}
	if len(v.lists) == 0 {
		return v, errors.Join(errors.New("no control plane tells about etcd"), err)
	}
	return v, nil
}

// etcdOf asks one control plane for the members of etcd, and whether it leads.
// One whose own member does not run answers nothing.
func etcdOf(ctx context.Context, address string, a *access) ([]etcdMember, bool, error) {
	ctx, c, end, err := talk(ctx, address, a, dialTimeout)
	if err != nil {
		return nil, false, err
	}
	defer end()
	if err := etcdRuns(ctx, c, address); err != nil {
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
	var members []etcdMember
	for _, m := range list.Messages[0].GetMembers() {
		members = append(members, etcdMember{id: m.Id, name: m.Hostname, host: hostOf(m.PeerUrls), learner: m.IsLearner})
	}
	return members, own.GetLeader() != 0 && own.GetLeader() == own.GetMemberId(), nil
}

// etcdRuns returns an error where the service etcd of a control plane does not run. The
// calls that etcd itself answers would wait for it until their deadline.
func etcdRuns(ctx context.Context, c *client.Client, address string) error {
	info, err := c.ServiceInfo(ctx, "etcd")
	switch {
	case err != nil:
		return fmt.Errorf("read service etcd of %s: %w", address, err)
	case len(info) == 0:
		return fmt.Errorf("read service etcd of %s: there is none", address)
	case info[0].Service.GetState() != etcdRunning:
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

// leaveEtcd has a control plane hand over the leadership and leave etcd.
func leaveEtcd(ctx context.Context, address string, a *access, leads bool) error {
	ctx, c, end, err := talk(ctx, address, a, bootstrapRPC)
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
		return fmt.Errorf("take %s out of etcd: %w", address, err)
	}
	return nil
}

// removeMember has one control plane take another member out of etcd.
func removeMember(ctx context.Context, address string, a *access, id uint64) error {
	ctx, c, end, err := talk(ctx, address, a, shortRPC)
	if err != nil {
		return err
	}
	defer end()
	if err := c.EtcdRemoveMemberByID(ctx, &machine.EtcdRemoveMemberByIDRequest{MemberId: id}); err != nil {
		return fmt.Errorf("take member %x out of etcd through %s: %w", id, address, err)
	}
	return nil
}
