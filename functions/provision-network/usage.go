package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/pool"
)

const (
	// recount is after what time resync finishes the count of a process that died.
	recount = 30 * time.Second
	// easing is how many times longer than a count is the wait for the next, so that
	// networks of thousands of addresses, which are all read, are counted less often.
	easing = 50
	// late is how late a count may be for that.
	late = recount / 3
	// waiters is how many deliveries of a process wait at the same time to count again:
	// they take the places of others, which a broker has a limited number of.
	waiters = 10
	// mostCounted is the largest integer that every JSON reader keeps.
	mostCounted = 1 << 53
)

// countedByAllocations tells whether an event is of a NetworkConfiguration that changes
// nothing that is counted but what its IPAllocations have events for.
func countedByAllocations(in event.Event, kind string) bool {
	nc := &v1alpha1.NetworkConfiguration{}
	if kind != "NetworkConfiguration" || events.IsDelete(in.Type()) || !events.Carried(in, nc) || nc.Spec.ClusterIdentifier != "" {
		return false
	}
	dynamic := func(i v1alpha1.InterfaceStatus) bool { return i.AllocationMethod != v1alpha2.AllocationStatic }
	return len(nc.Status.NetworkInterfaces) > 0 && !slices.ContainsFunc(nc.Status.NetworkInterfaces, dynamic)
}

// usersChanged looks at the networks of a namespace in which something has got, or
// given up, addresses: deletions may wait for that, and it is counted. Many changes
// at the same time are looked at once. While networks of many namespaces are counted,
// resync finishes the counts.
func (f *function) usersChanged(ctx context.Context, namespace string, gone bool) error {
	var noted []*v1alpha2.NetworkNamespace
	began := f.now()
	err := f.looks.Do(ctx, fmt.Sprint(namespace, gone), func(ctx context.Context) (err error) {
		noted, err = f.noteUsers(ctx, namespace, gone)
		return err
	})
	if len(noted) == 0 {
		return err
	}
	defer f.waiting.Add(-1)
	if f.waiting.Add(1) > waiters {
		return err
	}
	pause := max(f.pause, min(easing*f.now().Sub(began), late))
	return errors.Join(err, f.finishCount(ctx, noted, pause))
}

// noteUsers counts the users of the networks of a namespace, and returns those for
// which it has noted that they have to be counted again when more has had a moment
// to happen. The note is nextCheckTime: it keeps others from counting, and has
// resync do it if this process dies. In a conflict somebody else counts.
func (f *function) noteUsers(ctx context.Context, namespace string, gone bool) (noted []*v1alpha2.NetworkNamespace, err error) {
	list := &v1alpha2.NetworkNamespaceList{}
	if err := f.kube.List(ctx, namespace, "", list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		nn := &list.Items[i]
		count := false
		switch {
		case nn.DeletionTimestamp != nil && gone:
			err = kube.OnConflict(func() error { return f.settle(ctx, nn.Namespace, nn.Name, look{}) })
		case nn.DeletionTimestamp == nil && isReady(nn) && nn.Status.NextCheckTime == nil:
			count, err = f.note(ctx, nn)
		}
		if err != nil {
			return noted, err
		}
		if count {
			noted = append(noted, nn)
		}
	}
	return noted, nil
}

// note counts the users of a network, and reports whether it has noted that they
// are others than before.
func (f *function) note(ctx context.Context, nn *v1alpha2.NetworkNamespace) (bool, error) {
	before := nn.DeepCopy()
	if err := f.summarize(ctx, nn); err != nil || !changed(before, nn) {
		return false, err
	}
	nn.Status.NextCheckTime = at(f.now(), recount)
	wrote, err := f.kube.PatchStatus(ctx, before, nn)
	if kube.Conflict(err) || kube.NotFound(err) {
		return false, nil
	}
	return wrote, err
}

// finishCount counts the users of networks again after a while, and takes the note
// away that kept others from counting.
func (f *function) finishCount(ctx context.Context, noted []*v1alpha2.NetworkNamespace, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(pause):
	}
	for _, nn := range noted {
		if err := f.countLast(ctx, nn); err != nil {
			return err
		}
	}
	return nil
}

// countLast takes the note away, and counts after that, so that it sees whoever was
// kept from counting by the note.
func (f *function) countLast(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	err := kube.OnConflict(func() error {
		if err := f.kube.Get(ctx, nn.Namespace, nn.Name, nn); err != nil {
			return err
		}
		if !provided(nn) || nn.DeletionTimestamp != nil {
			return nil
		}
		before := nn.DeepCopy()
		nn.Status.NextCheckTime = nil
		if _, err := f.kube.PatchStatus(ctx, before, nn); err != nil {
			return err
		}
		return f.recount(ctx, nn)
	})
	if kube.NotFound(err) {
		return nil
	}
	return err
}

func changed(before, after *v1alpha2.NetworkNamespace) bool {
	a, b := before.Status, after.Status
	return !slices.Equal(a.AssociatedKubernetesClusterIDs, b.AssociatedKubernetesClusterIDs) ||
		(a.IPAllocationSummary == nil) != (b.IPAllocationSummary == nil) ||
		(a.IPAllocationSummary != nil && *a.IPAllocationSummary != *b.IPAllocationSummary)
}

// count brings the summary of a network up to date that has all that it wants,
// unless somebody is doing so.
func (f *function) count(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	if f.now().Before(nextCheck(nn)) {
		return nil
	}
	return f.recount(ctx, nn)
}

func (f *function) recount(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	before := nn.DeepCopy()
	nn.Status.NextCheckTime = nil
	if err := f.summarize(ctx, nn); err != nil {
		return err
	}
	_, err := f.kube.PatchStatus(ctx, before, nn)
	return err
}

// summarize counts the addresses that are given out, and names the clusters that
// have machines in the network.
func (f *function) summarize(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	configurations, allocations := &v1alpha1.NetworkConfigurationList{}, &v1alpha2.IPAllocationList{}
	in := metav1.ListOptions{FieldSelector: "status.networkNamespaceName=" + nn.Name}
	named := metav1.ListOptions{FieldSelector: "spec.networkNamespaceName=" + nn.Name}
	if err := f.kube.ListPage(ctx, nn.Namespace, in, configurations); err != nil {
		return err
	}
	if static(nn) {
		if err := f.kube.ListPage(ctx, nn.Namespace, named, allocations); err != nil {
			return err
		}
	}
	nn.Status.AssociatedKubernetesClusterIDs = clusterIDs(configurations.Items)
	nn.Status.IPAllocationSummary = summaryOf(nn, configurations.Items, allocations.Items)
	return nil
}

func static(nn *v1alpha2.NetworkNamespace) bool {
	return nn.Spec.IPAllocation != nil && nn.Spec.IPAllocation.Type == v1alpha2.AllocationStatic
}

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

// summaryOf counts the addresses of one family: IPv4, or IPv6 where there is no
// IPv4. It is nil for a network whose pool is not in order, of which allocate-ip
// tells.
func summaryOf(nn *v1alpha2.NetworkNamespace, configurations []v1alpha1.NetworkConfiguration, allocations []v1alpha2.IPAllocation) *v1alpha2.IPAllocationSummary {
	family := v1alpha2.IPv4
	if nn.Status.IPv4Prefix == "" {
		family = v1alpha2.IPv6
	}
	s := &v1alpha2.IPAllocationSummary{Type: v1alpha2.AllocationDHCP, Provider: "kea"}
	p, err := wholePool(nn, family)
	addresses := reserved(configurations, family)
	if static(nn) {
		s.Type, s.Provider = v1alpha2.AllocationStatic, "static-ip-operator"
		p, err = pool.New(nn, family)
		addresses = allocated(allocations)
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
	s.TotalCount = int64(min(p.Size(), mostCounted))
	s.AvailableCount = s.TotalCount - inPool
	return s
}

// wholePool is the pool of a network whose addresses are reserved in Kea.
func wholePool(nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) (pool.Pool, error) {
	text := nn.Status.IPv4Prefix
	if family == v1alpha2.IPv6 {
		text = nn.Status.IPv6Prefix
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return pool.Pool{}, fmt.Errorf("read the prefix of NetworkNamespace %s: %w", nn.Name, err)
	}
	return pool.Whole(prefix, pool.Gateway(nn, family)), nil
}

// allocated are the addresses of static allocations.
func allocated(allocations []v1alpha2.IPAllocation) (addresses []string) {
	for _, a := range allocations {
		if a.Status.Address != "" {
			addresses = append(addresses, a.Status.Address)
		}
	}
	return addresses
}

// reserved are the addresses of reservations.
func reserved(configurations []v1alpha1.NetworkConfiguration, family v1alpha2.IPFamily) (addresses []string) {
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
