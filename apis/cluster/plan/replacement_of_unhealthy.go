package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// DefaultUnhealthyTimeout is the unhealthyTimeout of a health check that has none.
const DefaultUnhealthyTimeout = 10 * time.Minute

// HealthCheck is the health check of a group, with its defaults.
type HealthCheck struct {
	Enabled bool
	// Timeout is how long a machine is unhealthy before it is replaced, and MinimumAge how old it
	// has to be, so that replacements which never become healthy do not follow each other fast.
	Timeout, MinimumAge time.Duration
	// MaxUnhealthy is the number of unhealthy machines above which none is replaced.
	MaxUnhealthy int
}

// HealthCheckOf returns the health check of a group.
func HealthCheckOf(g Group) HealthCheck {
	h := HealthCheck{Enabled: g.Role == v1alpha1.RoleWorker, Timeout: DefaultUnhealthyTimeout, MaxUnhealthy: max(1, g.Replicas*2/5)}
	if spec := g.Properties.HealthCheck; spec != nil {
		if spec.Enabled != nil {
			h.Enabled = *spec.Enabled
		}
		if spec.UnhealthyTimeout != nil {
			h.Timeout = spec.UnhealthyTimeout.Duration
		}
		if spec.MaxUnhealthy > 0 {
			h.MaxUnhealthy = int(spec.MaxUnhealthy)
		}
	}
	const minimumControlPlanes = 3 // with fewer, etcd has no majority without the unhealthy one
	if g.Role == v1alpha1.RoleControlPlane && g.Replicas < minimumControlPlanes {
		h.Enabled = false
	}
	h.MinimumAge = 3 * h.Timeout
	return h
}

// UnhealthySince returns since when a Machine is unhealthy, or the zero time for one that is not: its
// node is not Ready, or it runs and has no Node. A Machine that a user has switched off, or that
// is in removal, is not unhealthy.
func UnhealthySince(m *v1alpha1.Machine, node *Node) time.Time {
	switch {
	case IsLeaving(m) || m.Spec.PowerState == v1alpha1.PowerStopped || !IsInstalled(m):
		return time.Time{}
	case node != nil && node.Ready:
		return time.Time{}
	case node != nil:
		return node.ReadySince
	case !IsRunning(m):
		return time.Time{}
	default:
		return readySince(m)
	}
}

// UnhealthyMachine is a machine whose node is unhealthy.
type UnhealthyMachine struct {
	Name string
	// Since is when it became unhealthy, and Created when its Machine was created.
	Since, Created time.Time
	// Protected is whether the Machine cannot be deleted.
	Protected bool
}

// SelectUnhealthy decides which machine of a group the health check replaces now, and else returns
// why it replaces none of the unhealthy. gone counts the replaced ones whose Machines are still being deleted, which takes as long as
// their host is away. They count as unhealthy:
//
//	the health check is off                     none
//	a replacement or removal is in progress     none, because one follows the other
//	more than maxUnhealthy machines             none: the network or a hypervisor may be at fault
//	unhealthy for less than the timeout         none yet
//	younger than the minimum age, or protected  not this machine
//	otherwise                                   the one that has been unhealthy longest
func SelectUnhealthy(h HealthCheck, unhealthy []UnhealthyMachine, gone, inProgress int, now time.Time) (name, why string) {
	switch {
	case len(unhealthy) == 0:
		return "", ""
	case !h.Enabled:
		return "", "their health check is off (healthCheck.enabled)"
	case inProgress > 0:
		return "", "another machine is being replaced or removed"
	case len(unhealthy)+gone > h.MaxUnhealthy:
		return "", fmt.Sprintf("%d are unhealthy, which is more than %d (healthCheck.maxUnhealthy): check the network and the hypervisor", len(unhealthy)+gone, h.MaxUnhealthy)
	}
	candidates := slices.DeleteFunc(slices.Clone(unhealthy), func(u UnhealthyMachine) bool {
		return u.Protected || now.Sub(u.Since) < h.Timeout || now.Sub(u.Created) < h.MinimumAge
	})
	if len(candidates) == 0 {
		return "", fmt.Sprintf("a machine is replaced after %s without a Ready node, at an age of at least %s, unless it is protected", h.Timeout, h.MinimumAge)
	}
	slices.SortFunc(candidates, func(a, b UnhealthyMachine) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	return candidates[0].Name, ""
}

// DescribeUnhealthy returns what the condition MachinesHealthy says of a pool: the machines that the
// health check replaces, as long as they exist, or why it replaces none of the unhealthy. It is
// empty if there are neither.
func DescribeUnhealthy(pool string, replaced []string, unhealthy int, why string) string {
	switch {
	case len(replaced) > 0:
		message := fmt.Sprintf("pool %s: replacing Machine %s, whose node is unhealthy", pool, strings.Join(slices.Sorted(slices.Values(replaced)), ", "))
		if why != "" {
			message += fmt.Sprintf("; %s unhealthy beside it: %s", Plural(unhealthy, "machine"), why)
		}
		return message
	case why != "":
		return fmt.Sprintf("pool %s: %s unhealthy, and none is replaced: %s", pool, Plural(unhealthy, "machine"), why)
	default:
		return ""
	}
}
