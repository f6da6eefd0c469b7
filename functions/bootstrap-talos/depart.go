package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// departure is what is known of a machine that leaves.
type departure struct {
	// deleted is whether its Machine is being deleted, and forced whether somebody
	// gave up on its drain and its etcd member.
	deleted, forced bool
	// known is whether the workload API answers, and node whether that has a Node of
	// it, which may be ready and cordoned.
	known, node, ready, cordoned bool
	// emptied is whether its pods are gone, expired whether they have had the time
	// that the spec gives them, and overdue whether they have taken long without one.
	emptied, expired, overdue bool
	// member is whether etcd has it, objection why it cannot be taken out of that, and
	// agreed whether all members of etcd have the same list.
	member    bool
	objection string
	agreed    bool
	// answers is whether its own member of etcd does.
	answers bool
}

// leaveStep is what is done next for a machine that leaves.
type leaveStep string

const (
	leaveObject leaveStep = "Object"
	leaveBlind  leaveStep = "Blind"
	leaveCordon leaveStep = "Cordon"
	leaveDrain  leaveStep = "Drain"
	leaveQuits  leaveStep = "LeaveEtcd"
	leaveExpel  leaveStep = "Expel"
	leaveAgree  leaveStep = "Agree"
	leaveDelete leaveStep = "Delete"
	leaveGoes   leaveStep = "Goes"
)

// next decides the next step of a machine that leaves:
//
//	in etcd, and cannot be taken out       object
//	nothing is known of its pods           wait for the workload API
//	its pods can move, not cordoned        cordon
//	its pods can move, and are there       drain
//	in etcd, and answers                   leave etcd
//	in etcd, and is dead                   be expelled by another member
//	out of etcd, not in everybody's list   wait until all agree
//	otherwise                              delete the Machine, and wait until it is gone
//
// Pods of a node that is not Ready cannot end, so that nobody waits for those.
// What is forced or deleted already waits for nothing but its end.
func (d departure) next() leaveStep {
	inEtcd := d.member && !d.forced
	pods := d.nextForPods()
	switch {
	case inEtcd && d.objection != "":
		return leaveObject
	case pods != "":
		return pods
	case inEtcd && d.answers:
		return leaveQuits
	case inEtcd:
		return leaveExpel
	case !d.forced && !d.agreed:
		return leaveAgree
	case !d.deleted:
		return leaveDelete
	default:
		return leaveGoes
	}
}

// nextForPods is the next step for its pods, empty where there is none.
func (d departure) nextForPods() leaveStep {
	switch {
	case d.forced || d.deleted:
		return ""
	case !d.known:
		return leaveBlind
	case !d.node || !d.ready || d.expired:
		return ""
	case !d.cordoned:
		return leaveCordon
	case !d.emptied:
		return leaveDrain
	default:
		return ""
	}
}

// depart does the next step for a machine that leaves, and says what that waits
// for.
func (f *function) depart(ctx context.Context, c *cluster, m *v1alpha1.Machine) error {
	d := f.departureOf(c, m)
	view, member, err := f.membership(ctx, c, m, &d)
	if err != nil {
		return err
	}
	why := d.objection
	if d.next() == leaveDrain {
		pods, err := c.workload.drain(ctx, m.Name)
		switch {
		case err != nil && !d.overdue:
			return waits{reason: "WaitingForAPI", message: "waits for the workload API, to move pods from " + m.Name, silent: true}
		case err != nil:
			why = err.Error()
		case pods.blocked != "":
			why = pods.blocked
		case pods.done():
			d.emptied = true
		default:
			why = fmt.Sprintf("waits for %s to end, first of all %s", count(len(pods.left), "pod"), pods.left[0])
		}
	}
	step := d.next()
	if step == leaveDrain && d.overdue {
		return fault{"DrainBlocked", fmt.Sprintf(
			"node %s is to leave, and its pods have not gone within %s: %s; let them go, or go on without them by drainTimeout of its pool, or by the annotation %s=true on Machine %s",
			m.Name, drainPatience, why, v1alpha1.AnnotationForce, m.Name)}
	}
	return f.take(ctx, c, m, step, view, member, why)
}

func (f *function) departureOf(c *cluster, m *v1alpha1.Machine) departure {
	n, ok := c.node(m.Name)
	d := departure{
		deleted: m.DeletionTimestamp != nil, forced: m.Annotations[v1alpha1.AnnotationForce] == "true",
		known: c.reachable, node: ok, ready: n.ready, cordoned: n.cordoned, agreed: true,
	}
	since, err := time.Parse(time.RFC3339, m.Annotations[v1alpha1.AnnotationRemoving])
	if err != nil {
		return d
	}
	var properties v1alpha1.MachineProperties
	if i := slices.IndexFunc(c.plan.groups, func(g group) bool { return g.pool == poolOf(m) }); i >= 0 {
		properties = c.plan.groups[i].properties
	}
	late := f.now().Sub(since) > drainTime(properties)
	d.expired, d.overdue = late && properties.DrainTimeout != nil, late && properties.DrainTimeout == nil
	return d
}

// membership finds out what etcd has of a machine. A worker has nothing to do with it,
// nor has a cluster for which no control plane was chosen to begin it. etcd may have begun
// on the chosen one although that has not been seen.
func (f *function) membership(ctx context.Context, c *cluster, m *v1alpha1.Machine, d *departure) (etcdView, etcdMember, error) {
	if poolOf(m) != controlPlanePool || (!c.bootstrapped && c.Status.BootstrapMachine == "") || d.forced {
		return etcdView{}, etcdMember{}, nil
	}
	view, err := askEtcd(ctx, c.controlPlanes(), c.access)
	if err != nil && (!c.bootstrapped || (d.deleted && !protected(m))) {
		return view, etcdMember{}, nil // nothing can be asked, and nothing holds it up
	}
	if err != nil {
		return view, etcdMember{}, fault{"EtcdUnavailable", fmt.Sprintf(
			"control plane %s cannot leave: no member of etcd answers; bring one back, or set the annotation %s=true on Machine %s to give up on its member", m.Name, v1alpha1.AnnotationForce, m.Name)}
	}
	member, listed := view.of(m.Name, firstAddress(m))
	if d.member = listed; listed {
		d.objection = mayLeave(view, member)
	}
	_, d.answers = view.lists[m.Name]
	d.agreed = view.agreed()
	return view, member, nil
}

// take does one step.
func (f *function) take(ctx context.Context, c *cluster, m *v1alpha1.Machine, step leaveStep, view etcdView, member etcdMember, why string) error {
	removing := func(message string, silent bool) error {
		return waits{reason: "RemovingNodes", message: fmt.Sprintf("removes node %s: %s", m.Name, message), silent: silent}
	}
	var err error
	switch step {
	case leaveObject:
		message := fmt.Sprintf("control plane %s cannot leave: %s; the annotation %s=true on Machine %s gives up on its member", m.Name, why, v1alpha1.AnnotationForce, m.Name)
		if heldByEtcd(m) {
			return waits{reason: reasonQuorumAtRisk, message: message, silent: true} // its substitute may be joining
		}
		return fault{reasonQuorumAtRisk, message}
	case leaveBlind:
		return waits{reason: "WaitingForAPI", message: fmt.Sprintf("waits for the workload API at %s, to move pods from %s", c.Status.Endpoint, m.Name), silent: true}
	case leaveDrain:
		return removing(why, true)
	case leaveCordon:
		if err = c.workload.cordon(ctx, m.Name, true); err == nil {
			return removing("keeps new pods from it", true)
		}
	case leaveQuits:
		if err = leaveEtcd(ctx, c.controlPlanes()[m.Name], c.access, view.leads[m.Name]); err == nil {
			return removing("has left etcd", true)
		}
	case leaveExpel:
		if err = f.expel(ctx, c, view, member); err == nil {
			return removing("is taken out of etcd", true)
		}
	case leaveAgree:
		return removing("waits for all members of etcd to know that it has left", true)
	case leaveDelete:
		if err = f.release(ctx, m); err != nil {
			return err
		}
		if err = f.kube.Delete(ctx, m); err != nil {
			return err
		}
		return removing("waits for its machine to be deleted", false)
	case leaveGoes:
		if err = f.release(ctx, m); err != nil {
			return err
		}
		return removing("waits for its machine to be deleted"+whyNotReady(m), false)
	}
	return waits{reason: "RemovingNodes", message: fmt.Sprintf("removes node %s: it is tried again, since something did not answer as it should", m.Name), silent: true}
}

// expel has a member of etcd that answers take out another one, the leader first.
func (f *function) expel(ctx context.Context, c *cluster, view etcdView, member etcdMember) error {
	addresses := c.controlPlanes()
	peers := slices.Sorted(maps.Keys(view.lists))
	slices.SortStableFunc(peers, func(a, b string) int {
		return pick(view.leads[a], -1, pick(view.leads[b], 1, 0))
	})
	var problems []error
	for _, name := range peers {
		if name == member.name {
			continue
		}
		err := removeMember(ctx, addresses[name], c.access, member.id)
		if err == nil {
			return nil
		}
		problems = append(problems, err)
	}
	return errors.Join(append(problems, errors.New("no other member of etcd answers"))...)
}
