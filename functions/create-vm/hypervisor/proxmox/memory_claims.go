package proxmox

import (
	"context"
	"maps"
	"slices"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Annotations of the Lease of a VMID. They name the MachineProvider, and the host and the memory that the machine has claimed with the VMID.
const (
	annotationClaimedAt     = "vitistack.io/machine-provider"
	annotationClaimedID     = "vitistack.io/provider-id"
	annotationClaimedMemory = "vitistack.io/memory-bytes"
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
}

// memoryClaims are the claims of the machines of a MachineProvider, the newest of each.
type memoryClaims []memoryClaim

// claimAnnotations returns the annotations of the Lease of a VMID.
func (v vmids) claimAnnotations(m *v1alpha1.Machine, node string, vmid int, bytes int64) map[string]string {
	return map[string]string{
		v1alpha1.LabelMachine: m.Namespace + "/" + m.Name, annotationClaimedAt: v.provider.Name,
		annotationClaimedID: formatProviderID(node, vmid), annotationClaimedMemory: strconv.FormatInt(bytes, 10),
	}
}

// claimPage is how many Leases one request lists.
const claimPage = 500

// listClaims returns the claims of the machines of the MachineProvider.
func (v vmids) listClaims(ctx context.Context) (memoryClaims, error) {
	newest := map[string]memoryClaim{}
	page := kube.Page{Namespace: v.namespace, Selector: v1alpha1.LabelManagedBy + "=" + hypervisor.FunctionName, Limit: claimPage}
	err := v.home.EachMetadata(ctx, coordinationv1.SchemeGroupVersion.WithResource("leases"), page, func(lease *metav1.PartialObjectMetadata) {
		c, ok := claimOf(lease)
		if ok && lease.Annotations[annotationClaimedAt] == v.provider.Name && c.revision >= newest[c.holder].revision {
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
	return memoryClaim{lease.Labels[v1alpha1.LabelHolder], node, vmid, bytes, revision}, err == nil && node != ""
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

// withdrawClaim gives back the memory that a machine has claimed on a host which cannot take it. The machine keeps its VMID.
func (v vmids) withdrawClaim(ctx context.Context, m *v1alpha1.Machine, had memoryClaim) error {
	if had.bytes == 0 {
		return nil
	}
	_, err := v.moveClaim(ctx, m, had, had.node, had.vmid, 0)
	return err
}

// moveClaim writes another host, or another size, into the Lease of a machine's VMID. It reports whether it has changed, and then the claims have
// to be checked again. It creates a Lease that does not exist, as after a move to another management cluster, and leaves that of a former UID.
func (v vmids) moveClaim(ctx context.Context, m *v1alpha1.Machine, had memoryClaim, node string, vmid int, bytes int64) (changed bool, err error) {
	if had.node == node && had.vmid == vmid && had.bytes == bytes {
		return false, nil
	}
	lease := &coordinationv1.Lease{}
	err = v.home.Get(ctx, v.namespace, v.leaseName(vmid), lease)
	switch {
	case kube.NotFound(err):
		return v.createLease(ctx, m, node, vmid, bytes)
	case err != nil:
		return false, err
	case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != string(m.UID):
		return false, nil
	}
	before := lease.DeepCopy()
	for key, value := range v.claimAnnotations(m, node, vmid, bytes) {
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, key, value)
	}
	return v.home.Patch(ctx, before, lease)
}
