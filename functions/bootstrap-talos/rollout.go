package main

import (
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Times of a node's upgrade.
const (
	// askAgain is when a node that has not changed is asked again, since the request
	// may not have reached it.
	askAgain = time.Minute
	// upgradePatience is when a node that has not changed is given up.
	upgradePatience = 20 * time.Minute
	// drainPatience is how long pods have to go from a node whose pool says nothing.
	drainPatience = time.Hour
)

// observed is a member with what it runs.
type observed struct {
	member
	node workloadNode
	// api is the version of its API server, without v, for control planes.
	api string
}

// runs is the version of a kind that a node runs, empty where that is not known.
func (o observed) runs(kind v1alpha1.UpgradeKind) string {
	switch kind {
	case v1alpha1.UpgradeTalos:
		return o.node.talos
	case v1alpha1.UpgradeControlPlane:
		return o.api
	default:
		return strings.TrimPrefix(o.node.version, "v")
	}
}

// wants is the version of a kind that a node should run, empty where it has none of
// that kind.
func (p plan) wants(kind v1alpha1.UpgradeKind, m member) string {
	switch {
	case kind == v1alpha1.UpgradeTalos:
		return p.talos
	case kind == v1alpha1.UpgradeKubelet:
		return m.version
	case m.role == v1alpha1.RoleControlPlane:
		return p.kubernetes
	default:
		return ""
	}
}

// drainTime is how long pods have to go from a machine.
func drainTime(p v1alpha1.MachineProperties) time.Duration {
	if p.DrainTimeout != nil {
		return p.DrainTimeout.Duration
	}
	return drainPatience
}

// pending are the nodes that are known to run another version than they should.
func (p plan) pending(kind v1alpha1.UpgradeKind, nodes []observed) []observed {
	var out []observed
	for _, o := range nodes {
		want, now := p.wants(kind, o.member), o.runs(kind)
		if want != "" && now != "" && want != now {
			out = append(out, o)
		}
	}
	return out
}

// nextKind is what is upgraded now, empty where nothing has to be. Talos comes
// first if it runs the Kubernetes that is there, and otherwise after that. A kubelet
// is never newer than an API server.
func (p plan) nextKind(nodes []observed) v1alpha1.UpgradeKind {
	talos := p.pending(v1alpha1.UpgradeTalos, nodes)
	fits := !slices.ContainsFunc(talos, func(o observed) bool { return !supports(p.talos, o.runs(v1alpha1.UpgradeKubelet)) })
	switch {
	case len(talos) > 0 && fits:
		return v1alpha1.UpgradeTalos
	case len(p.pending(v1alpha1.UpgradeControlPlane, nodes)) > 0:
		return v1alpha1.UpgradeControlPlane
	case len(p.pending(v1alpha1.UpgradeKubelet, nodes)) > 0:
		return v1alpha1.UpgradeKubelet
	default:
		return ""
	}
}

// next are the nodes that an upgrade goes on with, where so many of each pool may be
// changed at the same time and busy are: one control plane at a time, and no worker
// before the last of them; then one pool after the other.
func (p plan) next(kind v1alpha1.UpgradeKind, nodes []observed, busy []v1alpha1.NodeUpgrade, atOnce map[string]int) []observed {
	under := map[string]int{}
	working := func(name string) bool {
		return slices.ContainsFunc(busy, func(u v1alpha1.NodeUpgrade) bool { return u.Name == name })
	}
	for _, o := range nodes {
		if working(o.name) {
			under[o.pool]++
		}
	}
	waiting := slices.DeleteFunc(p.pending(kind, nodes), func(o observed) bool { return working(o.name) })
	if len(waiting) == 0 {
		return nil
	}
	pool := waiting[0].pool
	for other := range under {
		if other != pool { // the pool before has not come to its end
			return nil
		}
	}
	var out []observed
	for _, o := range waiting {
		if o.pool == pool && under[pool] < max(1, atOnce[pool]) {
			out = append(out, o)
			under[pool]++
		}
	}
	return out
}

// turn is what happens to a node whose upgrade is under way.
type turn string

const (
	turnWait   turn = "wait"
	turnDrain  turn = "drain"
	turnAsk    turn = "ask"
	turnFinish turn = "finish"
	turnFail   turn = "fail"
)

// takeTurn decides that:
//
//	runs the wanted version, and is Ready    finish
//	has failed                               wait
//	still drains                             drain
//	has booted again, with the old version   fail
//	was asked long ago                       fail
//	was asked some time ago                  ask, for the request may be lost
//	was asked just now                       wait
func takeTurn(kind v1alpha1.UpgradeKind, u v1alpha1.NodeUpgrade, o observed, now time.Time) turn {
	changed := o.runs(kind) == u.To
	rebooted := u.BootID != "" && o.node.boot != "" && o.node.boot != u.BootID
	switch {
	case changed && o.node.ready:
		return turnFinish
	case u.Step == v1alpha1.UpgradeFailed:
		return turnWait
	case u.Step == v1alpha1.UpgradeDraining:
		return turnDrain
	case kind == v1alpha1.UpgradeTalos && rebooted && o.node.ready && !changed:
		return turnFail
	case now.Sub(u.Since.Time) >= upgradePatience:
		return turnFail
	case !changed && (u.Asked == nil || now.Sub(u.Asked.Time) >= askAgain):
		return turnAsk
	default:
		return turnWait
	}
}
