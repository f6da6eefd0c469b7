package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// DescribeVersions lists which versions there are, and how many nodes run each.
func DescribeVersions(nodes []UpgradeNode) string {
	counts := map[string]int{}
	for _, o := range nodes {
		if o.Node.Name != "" {
			counts[fmt.Sprintf("Kubernetes %s on Talos %s", o.RunningVersion(v1alpha1.UpgradeKubelet), o.Node.TalosVersion)]++
		}
	}
	var parts []string
	for what, n := range counts {
		parts = append(parts, Quantity(n, "node")+" with "+what)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Times of a node's upgrade.
const (
	// requestInterval is when a node that has not changed is asked again, since the request
	// may not have reached it.
	requestInterval = time.Minute
	// UpgradeTimeout is when a node that has not changed is given up.
	UpgradeTimeout = 20 * time.Minute
	// DefaultDrainTimeout is how long pods have to go from a node whose pool says nothing.
	DefaultDrainTimeout = time.Hour
)

// UpgradeNode is a member with what it runs.
type UpgradeNode struct {
	Member
	Node Node
	// APIVersion is the version of its API server, without v, for control planes.
	APIVersion string
}

// RunningVersion is the version of a kind that a node runs, empty where that is not known.
func (o UpgradeNode) RunningVersion(kind v1alpha1.UpgradeKind) string {
	switch kind {
	case v1alpha1.UpgradeTalos:
		return o.Node.TalosVersion
	case v1alpha1.UpgradeControlPlane:
		return o.APIVersion
	default:
		return strings.TrimPrefix(o.Node.Version, "v")
	}
}

// WantedVersion is the version of a kind that a node should run, empty where it has none of
// that kind.
func (p Plan) WantedVersion(kind v1alpha1.UpgradeKind, m Member) string {
	switch {
	case kind == v1alpha1.UpgradeTalos:
		return p.Talos
	case kind == v1alpha1.UpgradeKubelet:
		return m.Version
	case m.Role == v1alpha1.RoleControlPlane:
		return p.Kubernetes
	default:
		return ""
	}
}

// DrainTimeout is how long pods have to go from a machine.
func DrainTimeout(p v1alpha1.MachineProperties) time.Duration {
	if p.DrainTimeout != nil {
		return p.DrainTimeout.Duration
	}
	return DefaultDrainTimeout
}

// OutdatedNodes are the nodes that are known to run another version than they should.
func (p Plan) OutdatedNodes(kind v1alpha1.UpgradeKind, nodes []UpgradeNode) []UpgradeNode {
	var out []UpgradeNode
	for _, o := range nodes {
		want, now := p.WantedVersion(kind, o.Member), o.RunningVersion(kind)
		if want != "" && now != "" && want != now {
			out = append(out, o)
		}
	}
	return out
}

// NextUpgradeKind is what is upgraded now, empty where nothing has to be. Talos comes
// first if it runs the Kubernetes that is there, and otherwise after that. A kubelet
// is never newer than an API server.
func (p Plan) NextUpgradeKind(nodes []UpgradeNode) v1alpha1.UpgradeKind {
	talos := p.OutdatedNodes(v1alpha1.UpgradeTalos, nodes)
	fits := !slices.ContainsFunc(talos, func(o UpgradeNode) bool { return !isSupported(p.Talos, o.RunningVersion(v1alpha1.UpgradeKubelet)) })
	switch {
	case len(talos) > 0 && fits:
		return v1alpha1.UpgradeTalos
	case len(p.OutdatedNodes(v1alpha1.UpgradeControlPlane, nodes)) > 0:
		return v1alpha1.UpgradeControlPlane
	case len(p.OutdatedNodes(v1alpha1.UpgradeKubelet, nodes)) > 0:
		return v1alpha1.UpgradeKubelet
	default:
		return ""
	}
}

// NextNodes are the nodes that an upgrade goes on with, where so many of each pool may be
// changed at the same time and busy are: one control plane at a time, and no worker
// before the last of them; then one pool after the other.
func (p Plan) NextNodes(kind v1alpha1.UpgradeKind, nodes []UpgradeNode, busy []v1alpha1.NodeUpgrade, atOnce map[string]int) []UpgradeNode {
	under := map[string]int{}
	working := func(name string) bool {
		return slices.ContainsFunc(busy, func(u v1alpha1.NodeUpgrade) bool { return u.Name == name })
	}
	for _, o := range nodes {
		if working(o.Name) {
			under[o.Pool]++
		}
	}
	waiting := slices.DeleteFunc(p.OutdatedNodes(kind, nodes), func(o UpgradeNode) bool { return working(o.Name) })
	if len(waiting) == 0 {
		return nil
	}
	pool := waiting[0].Pool
	for other := range under {
		if other != pool { // the pool before has not come to its end
			return nil
		}
	}
	var out []UpgradeNode
	for _, o := range waiting {
		if o.Pool == pool && under[pool] < max(1, atOnce[pool]) {
			out = append(out, o)
			under[pool]++
		}
	}
	return out
}

// UpgradeStep is what happens to a node whose upgrade is under way.
type UpgradeStep string

const (
	UpgradeWait    UpgradeStep = "wait"
	UpgradeDrain   UpgradeStep = "drain"
	UpgradeRequest UpgradeStep = "ask"
	UpgradeFinish  UpgradeStep = "finish"
	UpgradeFail    UpgradeStep = "fail"
)

// NextUpgradeStep decides that:
//
//	runs the wanted version, and is Ready    finish
//	has failed                               wait
//	still drains                             drain
//	has booted again, with the old version   fail
//	was asked long ago                       fail
//	was asked some time ago                  ask, for the request may be lost
//	was asked just now                       wait
func NextUpgradeStep(kind v1alpha1.UpgradeKind, u v1alpha1.NodeUpgrade, o UpgradeNode, now time.Time) UpgradeStep {
	changed := o.RunningVersion(kind) == u.To
	rebooted := u.BootID != "" && o.Node.BootID != "" && o.Node.BootID != u.BootID
	switch {
	case changed && o.Node.Ready:
		return UpgradeFinish
	case u.Step == v1alpha1.UpgradeFailed:
		return UpgradeWait
	case u.Step == v1alpha1.UpgradeDraining:
		return UpgradeDrain
	case kind == v1alpha1.UpgradeTalos && rebooted && o.Node.Ready && !changed:
		return UpgradeFail
	case now.Sub(u.Since.Time) >= UpgradeTimeout:
		return UpgradeFail
	case !changed && (u.Asked == nil || now.Sub(u.Asked.Time) >= requestInterval):
		return UpgradeRequest
	default:
		return UpgradeWait
	}
}

// LowestAPIVersion is the oldest version of the API servers that answer.
func LowestAPIVersion(otherwise string, nodes []UpgradeNode) string {
	var oldest *semver.Version
	for _, o := range nodes {
		if v, err := semver.Parse(o.APIVersion); err == nil && (oldest == nil || v.LT(*oldest)) {
			oldest = &v
		}
	}
	if oldest == nil {
		return otherwise
	}
	return oldest.String()
}

// RenewUpgrade drops nodes that have left the cluster, and where the spec has changed, lets
// those that have not begun or have failed go for what is wanted now.
func (p Plan) RenewUpgrade(s *v1alpha1.UpgradeStatus, generation int64, nodes []UpgradeNode, now metav1.Time) {
	s.Nodes = slices.DeleteFunc(s.Nodes, func(u v1alpha1.NodeUpgrade) bool { return FindNode(nodes, u.Name) == nil })
	if s.Generation == generation {
		return
	}
	s.Generation = generation
	for i := range s.Nodes {
		u := &s.Nodes[i]
		if u.Step == v1alpha1.UpgradeRequested {
			continue
		}
		u.To = p.WantedVersion(s.Kind, FindNode(nodes, u.Name).Member)
		if u.Step == v1alpha1.UpgradeFailed {
			u.Step, u.Since, u.Asked, u.Message = v1alpha1.UpgradeDraining, now, nil, ""
		}
	}
}

func FindNode(nodes []UpgradeNode, name string) *UpgradeNode {
	i := slices.IndexFunc(nodes, func(o UpgradeNode) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &nodes[i]
}

// RecordStep writes down what is about to happen to a node.
func RecordStep(kind v1alpha1.UpgradeKind, u *v1alpha1.NodeUpgrade, now UpgradeStep, o *UpgradeNode, at metav1.Time) {
	switch now {
	case UpgradeRequest:
		if u.Step != v1alpha1.UpgradeRequested {
			u.Step, u.Since, u.BootID = v1alpha1.UpgradeRequested, at, o.Node.BootID
		}
		u.Asked, u.Message = &at, ""
	case UpgradeFail:
		drained := u.Step != v1alpha1.UpgradeDraining
		if u.Step, u.Since = v1alpha1.UpgradeFailed, at; !drained {
			return
		}
		u.Message = fmt.Sprintf("it runs %s and has not come to %s within %s", o.RunningVersion(kind), u.To, UpgradeTimeout)
		if kind == v1alpha1.UpgradeTalos && o.Node.BootID != u.BootID {
			u.Message = fmt.Sprintf("it has booted again with Talos %s: %s did not start there, and talosctl dmesg on the node says why", o.RunningVersion(kind), u.To)
		}
	}
}

func FailedNode(s *v1alpha1.UpgradeStatus) *v1alpha1.NodeUpgrade {
	i := slices.IndexFunc(s.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Step == v1alpha1.UpgradeFailed })
	if i < 0 {
		return nil
	}
	return &s.Nodes[i]
}
