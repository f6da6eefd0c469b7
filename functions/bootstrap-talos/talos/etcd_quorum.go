package talos

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/apis/cluster/plan"
)

// ReadQuorum asks every control plane whether it has data of etcd, and whether its member knows a leader. nodes are the addresses of
// the control planes by name. One that does not run has an empty address, and is silent. The caller sets Wanted of the result.
func ReadQuorum(ctx context.Context, nodes map[string]string, a *Credentials) plan.QuorumState {
	var state plan.QuorumState
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(plan.MaxConcurrentNodes)
	for name, address := range nodes {
		group.Go(func() error {
			empty, leader, err := false, false, errEtcdNotRunning
			if address != "" {
				empty, leader, err = readEtcdLeader(ctx, address, a)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				state.Silent = append(state.Silent, name)
			case empty:
				state.Empty = append(state.Empty, name)
			case leader:
				state.HasLeader = true
			default:
				state.Leaderless = append(state.Leaderless, name)
			}
			return nil
		})
	}
	_ = group.Wait()
	return state
}

// readEtcdLeader asks one control plane whether it has no data of etcd, and otherwise whether
// its member knows a leader.
func readEtcdLeader(ctx context.Context, address string, a *Credentials) (empty, leader bool, err error) {
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
		return false, false, errEtcdNotRunning
	}
	status, err := c.EtcdStatus(ctx)
	if err != nil {
		return false, false, fmt.Errorf("read the status of etcd on %s: %w", address, err)
	}
	if len(status.GetMessages()) == 0 {
		return false, false, errEtcdNotRunning
	}
	return false, status.Messages[0].GetMemberStatus().GetLeader() != 0, nil
}

// errEtcdNotRunning is the error of a control plane whose member of etcd does not run.
var errEtcdNotRunning = errors.New("its etcd does not run")
