package main

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
)

const (
	// countTimeout is the time after which resync finishes the count of a process that died.
	countTimeout = 30 * time.Second
	// pauseFactor is the pause before the next count as a multiple of the time of a count, so
	// that networks with thousands of addresses, which are all read, are counted less often.
	pauseFactor = 50
	// maxPause bounds that pause.
	maxPause = countTimeout / 3
	// maxWaiting is how many deliveries of a process wait at the same time to count again.
	// They occupy places of other deliveries, whose number a broker limits.
	maxWaiting = 10
	// maxCount is the largest integer that every JSON reader keeps.
	maxCount = 1 << 53
)

// isCountedByAllocations reports whether an event of a NetworkConfiguration needs no count,
// because its IPAllocations have events of their own for everything that is counted.
func isCountedByAllocations(in event.Event, kind string) bool {
	nc := &v1alpha1.NetworkConfiguration{}
	if kind != "NetworkConfiguration" || events.IsDelete(in.Type()) || !events.ObjectFrom(in, nc) || nc.Spec.ClusterIdentifier != "" {
		return false
	}
	dynamic := func(i v1alpha1.InterfaceStatus) bool { return i.AllocationMethod != v1alpha2.AllocationStatic }
	return len(nc.Status.NetworkInterfaces) > 0 && !slices.ContainsFunc(nc.Status.NetworkInterfaces, dynamic)
}

// usage counts the users of networks.
type usage struct {
	kube     *kube.Client
	now      func() time.Time
	recounts *recounts
}

func (f *function) usage() usage { return usage{f.kube, f.now, &f.recounts} }

// beginCount counts the users of a network and reports whether it has written another
// count. Then nextCheckTime keeps other deliveries from counting until countAgain, and has
// resync count if this process dies. After a conflict another delivery counts.
func (u usage) beginCount(ctx context.Context, nn *v1alpha2.NetworkNamespace) (bool, error) {
	before := nn.DeepCopy()
	if err := u.setCounts(ctx, nn); err != nil || !hasUsageChanged(before, nn) {
		return false, err
	}
	nn.Status.NextCheckTime = checkTime(u.now(), countTimeout)
	wrote, err := u.kube.PatchStatusAs(ctx, network.UsageManager, before, nn)
	if kube.Conflict(err) || kube.NotFound(err) {
		return false, nil
	}
	return wrote, err
}

// recounts has the networks that deliveries of this process have left to other deliveries, which wait to count again.
// If none of them counts a network, resync does.
type recounts struct {
	mu      sync.Mutex
	waiting int
	left    []*v1alpha2.NetworkNamespace
}

// join reports whether a delivery waits to count networks again, and otherwise leaves them to others.
func (r *recounts) join(networks []*v1alpha2.NetworkNamespace) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting >= maxWaiting {
		r.left = append(r.left, networks...)
		return false
	}
	r.waiting++
	return true
}

// leave ends the wait of a delivery.
func (r *recounts) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting--
}

// take returns a network that was left, or none.
func (r *recounts) take() (networks []*v1alpha2.NetworkNamespace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(1, len(r.left))
	networks, r.left = r.left[:n:n], r.left[n:]
	return networks
}

// countAgain counts the users of networks again after a pause, and then those of networks that were left.
func (u usage) countAgain(ctx context.Context, counted []*v1alpha2.NetworkNamespace, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(pause):
	}
	for len(counted) > 0 && ctx.Err() == nil {
		if err := u.finishCount(ctx, counted[0]); err != nil {
			return err
		}
		if counted = counted[1:]; len(counted) == 0 {
			counted = u.recounts.take()
		}
	}
	return nil
}

// finishCount clears nextCheckTime and counts after that, so that it counts what other
// deliveries have left to this one. It reads the network again, which may have been paused meanwhile.
func (u usage) finishCount(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	err := kube.OnConflict(func() error {
		if err := u.kube.Get(ctx, nn.Namespace, nn.Name, nn); err != nil {
			return err
		}
		if !isProvisioned(nn) || nn.DeletionTimestamp != nil || v1alpha1.IsPaused(nn) {
			return nil
		}
		before := nn.DeepCopy()
		nn.Status.NextCheckTime = nil
		if _, err := u.kube.PatchStatusAs(ctx, network.UsageManager, before, nn); err != nil {
			return err
		}
		return u.writeCounts(ctx, nn)
	})
	if kube.NotFound(err) {
		return nil
	}
	return err
}

// hasUsageChanged reports whether the usage in two statuses differs.
func hasUsageChanged(before, after *v1alpha2.NetworkNamespace) bool {
	a, b := before.Status, after.Status
	return !slices.Equal(a.AssociatedKubernetesClusterIDs, b.AssociatedKubernetesClusterIDs) ||
		(a.IPAllocationSummary == nil) != (b.IPAllocationSummary == nil) ||
		(a.IPAllocationSummary != nil && *a.IPAllocationSummary != *b.IPAllocationSummary)
}

// updateCounts writes the usage of a network, unless another delivery is about to.
func (u usage) updateCounts(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	if u.now().Before(nextCheck(nn)) {
		return nil
	}
	return u.writeCounts(ctx, nn)
}

func (u usage) writeCounts(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	before := nn.DeepCopy()
	nn.Status.NextCheckTime = nil
	if err := u.setCounts(ctx, nn); err != nil {
		return err
	}
	_, err := u.kube.PatchStatusAs(ctx, network.UsageManager, before, nn)
	return err
}

// setCounts writes the number of allocated addresses, and the clusters that have machines in
// the network, into the status of nn.
func (u usage) setCounts(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	configurations, allocations := &v1alpha1.NetworkConfigurationList{}, &v1alpha2.IPAllocationList{}
	in := metav1.ListOptions{FieldSelector: "status.networkNamespaceName=" + nn.Name}
	named := metav1.ListOptions{FieldSelector: "spec.networkNamespaceName=" + nn.Name}
	if err := u.kube.ListPage(ctx, nn.Namespace, in, configurations); err != nil {
		return err
	}
	if plan.IsStatic(nn) {
		if err := u.kube.ListPage(ctx, nn.Namespace, named, allocations); err != nil {
			return err
		}
	}
	nn.Status.AssociatedKubernetesClusterIDs = clusterIDs(configurations.Items)
	nn.Status.IPAllocationSummary = summarize(nn, configurations.Items, allocations.Items)
	return nil
}

// clusterIDs returns the identifiers of the clusters of NetworkConfigurations.
func clusterIDs(configurations []v1alpha1.NetworkConfiguration) []string {
	var ids []string
	for _, c := range configurations {
		if c.Spec.ClusterIdentifier != "" {
			ids = append(ids, c.Spec.ClusterIdentifier)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// summarize counts the addresses of one family: IPv4, or IPv6 if there is no IPv4. It
// returns nil for an invalid pool, which allocate-ip reports.
func summarize(nn *v1alpha2.NetworkNamespace, configurations []v1alpha1.NetworkConfiguration, allocations []v1alpha2.IPAllocation) *v1alpha2.IPAllocationSummary {
	family := v1alpha2.IPv4
	if nn.Status.IPv4Prefix == "" {
		family = v1alpha2.IPv6
	}
	s := &v1alpha2.IPAllocationSummary{Type: v1alpha2.AllocationDHCP, Provider: "kea"}
	p, err := plan.AddressPool(nn, family)
	addresses := reservedAddresses(configurations, family)
	if plan.IsStatic(nn) {
		s.Type, s.Provider = v1alpha2.AllocationStatic, "static-ip-operator"
		addresses = allocatedAddresses(allocations)
	}
	if err != nil {
		return nil
	}
	if nn.Spec.IPAllocation != nil {
		s.Provider = cmp.Or(nn.Spec.IPAllocation.Provider, s.Provider)
	}
	var inPool int64
	for _, text := range slices.Compact(slices.Sorted(slices.Values(addresses))) {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4() != (family == v1alpha2.IPv4) {
			continue
		}
		s.AllocatedCount++
		if p.Contains(a) {
			inPool++
		}
	}
	s.TotalCount = int64(min(p.Size(), maxCount))
	s.AvailableCount = s.TotalCount - inPool
	s.Available = describeCount(s.AvailableCount)
	return s
}

// describeCount returns a number of addresses as kubectl get shows it.
func describeCount(n int64) string {
	const most = 1_000_000
	if n > most {
		return ">" + strconv.Itoa(most)
	}
	return strconv.FormatInt(n, 10)
}

// allocatedAddresses returns the addresses of IPAllocations.
func allocatedAddresses(allocations []v1alpha2.IPAllocation) (addresses []string) {
	for _, a := range allocations {
		if a.Status.Address != "" {
			addresses = append(addresses, a.Status.Address)
		}
	}
	return addresses
}

// reservedAddresses returns the addresses of a family that are reserved in Kea.
func reservedAddresses(configurations []v1alpha1.NetworkConfiguration, family v1alpha2.IPFamily) (addresses []string) {
	for _, c := range configurations {
		for _, i := range c.Status.NetworkInterfaces {
			switch {
			case !i.DHCPReserved:
			case family == v1alpha2.IPv6:
				addresses = append(addresses, i.IPv6Addresses...)
			default:
				addresses = append(addresses, i.IPv4Addresses...)
			}
		}
	}
	return addresses
}
