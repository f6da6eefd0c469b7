package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Reasons for which a cluster has no etcd, or soon would have none.
const (
	reasonEtcdLost        = "EtcdLost"
	reasonEtcdUnavailable = "EtcdUnavailable"
	reasonQuorumAtRisk    = "QuorumAtRisk"
)

// etcdMajority is what the control planes of a cluster whose API does not answer say about
// etcd, each by its name.
type etcdMajority struct {
	// wanted is how many control planes the cluster has when all are there.
	wanted int
	// leaderless run etcd, and know no leader; silent may have its data and do not say;
	// empty have none.
	leaderless, silent, empty []string
	// led is whether a member knows a leader.
	led bool
}

// lost decides whether etcd has come to an end, and what a user has to do:
//
//	nobody has a configuration              not known
//	a member knows a leader                 no: only the API does not answer
//	every control plane says it has no data yes: it is lost
//	those that may have data are a majority no: they may come back
//	a member runs without a leader          yes: it has no majority and cannot get one
func (e etcdMajority) lost() error {
	left := len(e.leaderless) + len(e.silent)
	switch {
	case e.led || left+len(e.empty) == 0:
		return nil
	case left == 0:
		return fault{reasonEtcdLost, "no control plane has the data of etcd any more: restore a snapshot as functions/etcd-backup/README.md says, or delete the cluster and create it again"}
	case len(e.leaderless) == 0 || left > e.wanted/2:
		return nil
	default:
		return fault{reasonEtcdUnavailable, fmt.Sprintf(
			"%d of %d members of etcd left (%s), which is no majority: restore its data as functions/etcd-backup/README.md says under \"When a minority is left\", or delete the cluster and create it again",
			left, e.wanted, strings.Join(slices.Sorted(slices.Values(append(e.leaderless, e.silent...))), ", "))}
	}
}

// checkLost finds out whether an API does not answer because etcd has come to an end, and
// otherwise returns what the cluster waits for. The machine that etcd was to begin on may
// be beginning until the cluster has run.
func (f *function) checkLost(ctx context.Context, c *cluster, late error) error {
	if !c.bootstrapped || (c.Status.Version == "" && !c.beginning().lost) {
		return late
	}
	if err := c.askMajority(ctx).lost(); err != nil {
		return err
	}
	return late
}

// askMajority asks every control plane that has its configuration about its etcd.
func (c *cluster) askMajority(ctx context.Context) etcdMajority {
	e := etcdMajority{wanted: c.plan.count(v1alpha1.RoleControlPlane)}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(atOnce)
	for name, m := range c.machines {
		if poolOf(m) != controlPlanePool || !installed(m) {
			continue
		}
		group.Go(func() error {
			empty, leader, err := false, false, errNotRunning
			if m.Status.Phase == v1alpha1.MachineRunning && firstAddress(m) != "" {
				empty, leader, err = majorityOf(ctx, addressOf(m), c.access)
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				e.silent = append(e.silent, name)
			case empty:
				e.empty = append(e.empty, name)
			case leader:
				e.led = true
			default:
				e.leaderless = append(e.leaderless, name)
			}
			return nil
		})
	}
	_ = group.Wait()
	return e
}

// majorityOf asks one control plane whether it has no data of etcd, and otherwise whether
// its member knows a leader.
func majorityOf(ctx context.Context, address string, a *access) (empty, leader bool, err error) {
	ctx, c, end, err := talk(ctx, address, a, dialTimeout)
	if err != nil {
		return false, false, err
	}
	defer end()
	service, err := etcdServiceOf(ctx, c, address)
	switch {
	case err != nil:
		return false, false, err
	case service.state == etcdPreparing && service.empty:
		return true, false, nil
	case service.state != etcdRunning:
		return false, false, errNotRunning
	}
	status, err := c.EtcdStatus(ctx)
	if err != nil {
		return false, false, fmt.Errorf("read the status of etcd on %s: %w", address, err)
	}
	if len(status.GetMessages()) == 0 {
		return false, false, errNotRunning
	}
	return false, status.Messages[0].GetMemberStatus().GetLeader() != 0, nil
}

var errNotRunning = errors.New("its etcd does not run")

// describeUnanswered writes the conditions that are asked of nodes, where nobody has
// answered for as long as a delivery may wait.
func describeUnanswered(c *cluster, err error) {
	describeUnknown(c, v1alpha1.ConditionNodesReady)
	var flt fault
	if isEtcdEnd(err) && errors.As(err, &flt) {
		kube.SetCondition(&c.Status.Conditions, c.Generation, v1alpha1.ConditionEtcdHealthy, false, flt.reason, flt.message)
		return
	}
	describeUnknown(c, v1alpha1.ConditionEtcdHealthy)
}

// isEtcdEnd reports whether an error says that etcd has come to an end.
func isEtcdEnd(err error) bool {
	var flt fault
	return errors.As(err, &flt) && (flt.reason == reasonEtcdLost || flt.reason == reasonEtcdUnavailable)
}

// describeUnknown keeps what a condition has said last. One that has said nothing yet
// is left out.
func describeUnknown(c *cluster, kind string) {
	last := meta.FindStatusCondition(c.Status.Conditions, kind)
	if last == nil {
		return
	}
	const seen = "last seen: "
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionUnknown, ObservedGeneration: c.Generation,
		Reason: "StatusUnknown", Message: seen + strings.TrimPrefix(last.Message, seen),
	})
}
