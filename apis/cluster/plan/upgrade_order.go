package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/versions"
)

// DescribeVersions returns the versions that nodes run, with the number of nodes of each.
func DescribeVersions(nodes []UpgradeNode) string {
	counts := map[string]int{}
	for _, o := range nodes {
		if o.Node.Name != "" {
			counts[fmt.Sprintf("Kubernetes %s on Talos %s", o.RunningVersion(v1alpha1.UpgradeKubelet), o.Node.TalosVersion)]++
		}
	}
	var parts []string
	for what, n := range counts {
		parts = append(parts, Plural(n, "node")+" with "+what)
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// Times of the upgrade of a node.
const (
	// requestInterval is the time after which a request is repeated, because it may be lost.
	requestInterval = time.Minute
	// NodeUpgradeTimeout is the time after which the upgrade of a node has failed.
	NodeUpgradeTimeout = 20 * time.Minute
)

// UpgradeNode is a member with the versions that it runs.
type UpgradeNode struct {
	Member
	Node Node
	// APIVersion is the version of the API server of a control plane, without v.
	APIVersion string
}

// RunningVersion returns the version of a kind that a node runs, or an empty string if that is
// unknown.
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

// WantedVersion returns the version of a kind that a node should run. It is empty for a worker
// that is asked for the control plane.
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

// OutdatedNodes returns the nodes known to run another version than the wanted one.
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

// NextUpgradeKind returns what is upgraded next, or an empty string. Talos comes first if it
// supports the Kubernetes version that runs, and otherwise last. The control plane comes before
// the kubelets, because a kubelet must not be newer than an API server
// (https://kubernetes.io/releases/version-skew-policy).
func (p Plan) NextUpgradeKind(nodes []UpgradeNode) v1alpha1.UpgradeKind {
	talos := p.OutdatedNodes(v1alpha1.UpgradeTalos, nodes)
	fits := !slices.ContainsFunc(talos, func(o UpgradeNode) bool {
		return !versions.IsSupported(p.Talos, o.RunningVersion(v1alpha1.UpgradeKubelet))
	})
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

// NextNodesToUpgrade returns the nodes whose upgrade begins next: one control plane at a time, and then
// one pool after the other. busy are the nodes that are being upgraded, and concurrency is how
// many of each pool may be at the same time, 1 if it has none.
func (p Plan) NextNodesToUpgrade(kind v1alpha1.UpgradeKind, nodes []UpgradeNode, busy []v1alpha1.NodeUpgrade, concurrency map[string]int) []UpgradeNode {
	under := map[string]int{}
	isBusy := func(name string) bool {
		return slices.ContainsFunc(busy, func(u v1alpha1.NodeUpgrade) bool { return u.Name == name })
	}
	for _, o := range nodes {
		if isBusy(o.Name) {
			under[o.Pool]++
		}
	}
	waiting := slices.DeleteFunc(p.OutdatedNodes(kind, nodes), func(o UpgradeNode) bool { return isBusy(o.Name) })
	if len(waiting) == 0 {
		return nil
	}
	pool := waiting[0].Pool
	for other := range under {
		if other != pool { // the pool before is not done
			return nil
		}
	}
	var out []UpgradeNode
	for _, o := range waiting {
		if o.Pool == pool && under[pool] < max(1, concurrency[pool]) {
			out = append(out, o)
			under[pool]++
		}
	}
	return out
}

// UpgradeStep is the next step of a node that is being upgraded.
type UpgradeStep string

// Steps of the upgrade of a node.
const (
	UpgradeWait    UpgradeStep = "wait"
	UpgradeDrain   UpgradeStep = "drain"
	UpgradeRequest UpgradeStep = "request"
	UpgradeFinish  UpgradeStep = "finish"
	UpgradeFail    UpgradeStep = "fail"
)

// NextUpgradeStep decides the next step of a node that is being upgraded:
//
//	runs the wanted version and is Ready     finish
//	has failed                               wait
//	is being drained                         drain
//	has booted again with the old version    fail
//	NodeUpgradeTimeout is over               fail
//	last request is a minute old             request again: the request may be lost
//	otherwise                                wait
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
	case now.Sub(u.Since.Time) >= NodeUpgradeTimeout:
		return UpgradeFail
	case !changed && (u.Asked == nil || now.Sub(u.Asked.Time) >= requestInterval):
		return UpgradeRequest
	default:
		return UpgradeWait
	}
}

// MayStopAPI reports whether the upgrade of a node may be why the workload API does not answer: that of a control plane whose new API
// server does not, or whose new Talos has not booted in time.
func MayStopAPI(kind v1alpha1.UpgradeKind, u v1alpha1.NodeUpgrade, o UpgradeNode, now time.Time) bool {
	timedOut := u.Step == v1alpha1.UpgradeFailed || (u.Step == v1alpha1.UpgradeRequested && now.Sub(u.Since.Time) >= NodeUpgradeTimeout)
	mayStop := kind == v1alpha1.UpgradeControlPlane || (kind == v1alpha1.UpgradeTalos && timedOut)
	return mayStop && o.Role == v1alpha1.RoleControlPlane && o.RunningVersion(kind) != u.To
}

// LowestAPIVersion returns the oldest version of the API servers that answer, or otherwise if
// none does.
func LowestAPIVersion(otherwise string, nodes []UpgradeNode) string {
	var all []string
	for _, o := range nodes {
		all = append(all, o.APIVersion)
	}
	return cmp.Or(lowestVersion(all), otherwise)
}

// RenewUpgrade drops nodes that have left the cluster from an upgrade. If the generation of the
// spec has changed, nodes that have not begun or have failed begin again with the versions that
// are wanted now.
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

// FindNode returns the node with a name, or nil.
func FindNode(nodes []UpgradeNode, name string) *UpgradeNode {
	i := slices.IndexFunc(nodes, func(o UpgradeNode) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &nodes[i]
}

// RecordStep writes a step into the status of a node's upgrade, before it is done.
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
		u.Message = fmt.Sprintf("it still runs %s and not %s after %s", o.RunningVersion(kind), u.To, NodeUpgradeTimeout)
		if o.RunningVersion(kind) == "" {
			u.Message = fmt.Sprintf("it does not answer with version %s after %s", u.To, NodeUpgradeTimeout)
		}
		if kind == v1alpha1.UpgradeTalos && o.Node.BootID != "" && o.Node.BootID != u.BootID {
			u.Message = fmt.Sprintf("it has booted Talos %s again because %s failed to boot: run talosctl dmesg on the node", o.RunningVersion(kind), u.To)
		}
	}
}

// FailedNode returns the first node whose upgrade has failed, or nil.
func FailedNode(s *v1alpha1.UpgradeStatus) *v1alpha1.NodeUpgrade {
	i := slices.IndexFunc(s.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Step == v1alpha1.UpgradeFailed })
	if i < 0 {
		return nil
	}
	return &s.Nodes[i]
}
