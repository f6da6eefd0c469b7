package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// The range of VMIDs of a MachineProvider that names none.
const (
	firstVMID = 10000
	lastVMID  = 99999
)

// formatProviderID returns the provider ID of a virtual machine: its node and VMID, or the
// claimed ones before it exists.
func formatProviderID(node string, vmid int) string {
	return v1alpha1.ProxmoxIDScheme + node + "/" + strconv.Itoa(vmid)
}

// recordedPlacement returns the node and the VMID in the provider ID of a Machine, or zero values if it
// has none.
func recordedPlacement(m *v1alpha1.Machine) (node string, vmid int) {
	return parseProviderID(m.Status.ProviderID)
}

// parseProviderID returns the node and the VMID in a provider ID, or zero values if it is another text.
func parseProviderID(id string) (node string, vmid int) {
	rest, ok := strings.CutPrefix(id, v1alpha1.ProxmoxIDScheme)
	node, number, _ := strings.Cut(rest, "/")
	vmid, err := strconv.Atoi(number)
	if !ok || err != nil {
		return "", 0
	}
	return node, vmid
}

// vmids are the VMIDs of a MachineProvider, which Leases in a namespace claim for machines.
type vmids struct {
	settings
	// home is the client for the cluster of the function.
	home      *kube.Client
	namespace string
}

// claim claims a VMID of the range for a machine, and the host and memory of want. taken has the VMIDs in use at Proxmox VE, or claimed. The
// claim is a Lease with the name of the VMID, so the API server lets only one machine create it. The
// search starts at want.vmid if that is in the range, and otherwise at a VMID that derives from the
// machine's UID, so a second call finds the claim of the first one, and machines do not compete for
// the same VMID. The claim counts once it is in the machine's status. claim returns a UserError
// if the range is invalid or exhausted.
func (v vmids) claim(ctx context.Context, m *v1alpha1.Machine, taken map[int]bool, want memoryClaim) (int, error) {
	first, last := cmp.Or(int(v.options.VMIDStart), firstVMID), cmp.Or(int(v.options.VMIDEnd), lastVMID)
	if last < first {
		return 0, reconcile.UserError{Reason: "VMIDRangeInvalid", Message: fmt.Sprintf("MachineProvider %s: its VMIDs end at %d before they begin at %d: correct spec.proxmox.vmidEnd", v.provider.Name, last, first)}
	}
	size := last - first + 1
	start := firstCandidate(m, size)
	if want.vmid >= first && want.vmid <= last {
		start = want.vmid - first
	}
	for i := range size {
		vmid := first + (start+i)%size
		if taken[vmid] {
			continue
		}
		want.vmid = vmid
		mine, err := v.createLease(ctx, m, want)
		if err != nil {
			return 0, err
		}
		if mine {
			return vmid, nil
		}
	}
	return 0, reconcile.UserError{Reason: "VMIDsExhausted", Message: fmt.Sprintf("MachineProvider %s: every VMID from %d to %d is taken: raise spec.proxmox.vmidEnd, or delete machines", v.provider.Name, first, last)}
}

// firstCandidate returns where in a range of VMIDs the search for a machine starts.
func firstCandidate(m *v1alpha1.Machine, size int) int {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(m.UID))
	return int(hash.Sum64() % uint64(size))
}

// leaseName returns the name of the Lease of a VMID.
func (v vmids) leaseName(vmid int) string {
	return kube.Name("vmid", v.provider.Name, strconv.Itoa(vmid))
}

// createLease creates the Lease of the VMID that a machine claims, and reports whether the machine holds it. It does so
// after an earlier call as well.
func (v vmids) createLease(ctx context.Context, m *v1alpha1.Machine, c memoryClaim) (bool, error) {
	holder := string(m.UID)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.namespace, Name: v.leaseName(c.vmid),
			Labels:      map[string]string{v1alpha1.LabelManagedBy: hypervisor.FunctionName, v1alpha1.LabelHolder: holder},
			Annotations: v.claimAnnotations(m, c),
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	name := lease.Name
	err := v.home.Create(ctx, lease)
	if !kube.AlreadyExists(err) {
		return err == nil, err
	}
	held := &coordinationv1.Lease{}
	if err := v.home.Get(ctx, v.namespace, name, held); err != nil {
		if kube.NotFound(err) {
			return false, nil
		}
		return false, err
	}
	return held.Spec.HolderIdentity != nil && *held.Spec.HolderIdentity == holder, nil
}

// release releases all VMIDs of a machine, and the memory that it has claimed with them, also under its former UIDs.
func (v vmids) release(ctx context.Context, m *v1alpha1.Machine) error {
	for _, uid := range v1alpha1.UIDs(m) {
		if len(validation.IsValidLabelValue(uid)) > 0 {
			continue // a mistake in the annotation: no Lease has it
		}
		leases := &coordinationv1.LeaseList{}
		if err := v.home.List(ctx, v.namespace, v1alpha1.LabelHolder+"="+uid, leases); err != nil {
			return err
		}
		for i := range leases.Items {
			if err := v.home.Delete(ctx, &leases.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
