package proxmox

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Annotations of the Lease of a VMID. They name the MachineProvider, its endpoint and its Proxmox VE, the host and the memory that the machine has claimed with
// the VMID, and the hosts that could not start it.
const (
	annotationClaimedAt       = "vitistack.io/machine-provider"
	annotationClaimedEndpoint = "vitistack.io/endpoint"
	annotationClaimedCluster  = "vitistack.io/hypervisor"
	annotationClaimedID       = "vitistack.io/provider-id"
	annotationClaimedMemory   = "vitistack.io/memory-bytes"
	annotationFullHosts       = "vitistack.io/full-hosts"
)

// memoryClaim is the memory that a machine has claimed on a host. Proxmox VE lists it only once the virtual machine exists.
type memoryClaim struct {
	// holder is the UID of the Machine.
	holder string
	node   string
	vmid   int
	bytes  int64
	// revision orders claims by the time when they were written.
	revision uint64
	// fullHosts are the hosts that could not start the machine, separated by commas.
	fullHosts string
}

// memoryClaims are the claims of the machines of a Proxmox VE, the newest of each.
type memoryClaims []memoryClaim

// claimAnnotations returns the annotations of the Lease of a claim for a machine.
func (v vmids) claimAnnotations(m *v1alpha1.Machine, c memoryClaim) map[string]string {
	return map[string]string{
		v1alpha1.LabelMachine: m.Namespace + "/" + m.Name, annotationClaimedAt: v.provider.Name, annotationClaimedEndpoint: v.endpoint(), annotationClaimedCluster: v.identity(),
		annotationClaimedID: formatProviderID(c.node, c.vmid), annotationClaimedMemory: strconv.FormatInt(c.bytes, 10), annotationFullHosts: c.fullHosts,
	}
}

// endpoint returns the host and port of the MachineProvider. Two MachineProviders with the same are for one Proxmox VE.
func (v vmids) endpoint() string {
	if v.provider.Spec.Endpoint == nil {
		return ""
	}
	u, err := url.Parse(v.provider.Spec.Endpoint.URL)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// identity returns the ID of the Proxmox VE of the MachineProvider, which has an endpoint on each host. It is empty while it is unknown.
func (v vmids) identity() string {
	if v.provider.Status.Hypervisor == nil {
		return ""
	}
	return v.provider.Status.Hypervisor.ID
}

// isHere reports whether a Lease claims a VMID of the Proxmox VE of the MachineProvider. One of an earlier release names no endpoint, or no
// Proxmox VE.
func (v vmids) isHere(lease *metav1.PartialObjectMetadata) bool {
	is := func(annotation, own string) bool { return own != "" && lease.Annotations[annotation] == own }
	return is(annotationClaimedAt, v.provider.Name) || is(annotationClaimedEndpoint, v.endpoint()) || is(annotationClaimedCluster, v.identity())
}

// claimPage is how many Leases one request lists.
const claimPage = 500

// listClaims returns the claims of the machines of the Proxmox VE, also by other MachineProviders.
func (v vmids) listClaims(ctx context.Context) (memoryClaims, error) {
	newest := map[string]memoryClaim{}
	page := kube.Page{Namespace: v.namespace, Selector: v1alpha1.LabelManagedBy + "=" + hypervisor.FunctionName, Limit: claimPage}
	err := v.home.EachMetadata(ctx, coordinationv1.SchemeGroupVersion.WithResource("leases"), page, func(lease *metav1.PartialObjectMetadata) {
		c, ok := claimOf(lease)
		if ok && v.isHere(lease) && c.revision >= newest[c.holder].revision {
			newest[c.holder] = c
		}
	})
	return slices.Collect(maps.Values(newest)), err
}

// claimOf returns the claim in a Lease. One of an earlier release has none.
func claimOf(lease *metav1.PartialObjectMetadata) (c memoryClaim, ok bool) {
	node, vmid := parseProviderID(lease.Annotations[annotationClaimedID])
	bytes, err := strconv.ParseInt(lease.Annotations[annotationClaimedMemory], 10, 64)
	revision, _ := strconv.ParseUint(lease.ResourceVersion, 10, 64)
	return memoryClaim{lease.Labels[v1alpha1.LabelHolder], node, vmid, bytes, revision, lease.Annotations[annotationFullHosts]}, err == nil && node != ""
}

// of returns the claim of a machine, or an empty one.
func (claims memoryClaims) of(m *v1alpha1.Machine) memoryClaim {
	at := slices.IndexFunc(claims, func(c memoryClaim) bool { return c.holder == string(m.UID) })
	if at < 0 {
		return memoryClaim{}
	}
	return claims[at]
}

// unlisted returns the memory of each host that other machines have claimed and the inventory does not count. Of two machines that have claimed
// memory of one host at the same time, the one that was first does not see the other one, and so keeps the host: a machine checks
// the claims again after it has written its own.
func (claims memoryClaims) unlisted(all inventory, m *v1alpha1.Machine) map[string]int64 {
	counted := map[int]bool{}
	for _, i := range all {
		if i.reservesMemory() && i.MaxMem > 0 {
			counted[i.VMID] = true
		}
	}
	own, bytes := claims.of(m), map[string]int64{}
	for _, c := range claims {
		isLater := c.node == own.node && c.revision > own.revision
		if c.holder != string(m.UID) && !counted[c.vmid] && !isLater {
			bytes[c.node] += c.bytes
		}
	}
	return bytes
}

// vmids returns the VMIDs that other machines have claimed. A VMID is taken before its virtual machine exists, and a MachineProvider does not
// see the Leases of another one by their names.
func (claims memoryClaims) vmids(m *v1alpha1.Machine) map[int]bool {
	taken := map[int]bool{}
	for _, c := range claims {
		if c.holder != string(m.UID) {
			taken[c.vmid] = true
		}
	}
	return taken
}

// fullHosts returns the hosts that could not start a machine since it has begun to fail, so that no host is tried twice. A machine without
// failures, as after a change of its spec, may use all hosts again.
func fullHosts(m *v1alpha1.Machine, claim memoryClaim) []string {
	if m.Status.Failures == 0 || claim.fullHosts == "" {
		return nil
	}
	return strings.Split(claim.fullHosts, ",")
}

// withdrawClaim gives back the memory that a machine has claimed on a host which cannot take it. The machine keeps its VMID.
func (v vmids) withdrawClaim(ctx context.Context, m *v1alpha1.Machine, had memoryClaim) error {
	if had.bytes == 0 {
		return nil
	}
	withdrawn := had
	withdrawn.bytes = 0
	_, err := v.moveClaim(ctx, m, had, withdrawn)
	return err
}

// moveClaim writes another host, or another size, into the Lease of a machine's VMID. It reports whether it has changed, and then the claims have
// to be checked again. It creates a Lease that does not exist, as after a move to another management cluster, and leaves that of a former UID.
func (v vmids) moveClaim(ctx context.Context, m *v1alpha1.Machine, had, want memoryClaim) (changed bool, err error) {
	want.holder, want.revision = had.holder, had.revision
	if had == want {
		return false, nil
	}
	lease := &coordinationv1.Lease{}
	err = v.home.Get(ctx, v.namespace, v.leaseName(want.vmid), lease)
	switch {
	case kube.NotFound(err):
		return v.createLease(ctx, m, want)
	case err != nil:
		return false, err
	case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != string(m.UID):
		return false, nil
	}
	before := lease.DeepCopy()
	for key, value := range v.claimAnnotations(m, want) {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, key, value)
	}
	return v.home.Patch(ctx, before, lease)
}
