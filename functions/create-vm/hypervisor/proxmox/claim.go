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

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// The VMIDs that are used where a MachineProvider does not say.
const (
	firstVMID = 10000
	lastVMID  = 99999
)

const providerIDScheme = "proxmox://"

// formatProviderID names a virtual machine, and before it is made the place that it is
// claimed for.
func formatProviderID(node string, vmid int) string {
	return providerIDScheme + node + "/" + strconv.Itoa(vmid)
}

// recordedPlacement reads a proxmoxID. It returns zero values where there is none yet.
func recordedPlacement(m *v1alpha1.Machine) (node string, vmid int) {
	rest, ok := strings.CutPrefix(m.Status.ProviderID, providerIDScheme)
	node, number, _ := strings.Cut(rest, "/")
	vmid, err := strconv.Atoi(number)
	if !ok || err != nil {
		return "", 0
	}
	return node, vmid
}

// claimVMID takes a VMID for a machine that no other machine of any replica takes
// and that no virtual machine has: a Lease of its name can only be created once. It
// begins at a place that the machine's UID gives, so that a second try finds what
// the first one took and machines do not queue for the same one, or at from, where
// that is in the range. The claim counts once it is in the machine's status.
func (x *Hypervisor) claimVMID(ctx context.Context, m *v1alpha1.Machine, taken map[int]bool, from int) (int, error) {
	first, last := cmp.Or(int(x.options.VMIDStart), firstVMID), cmp.Or(int(x.options.VMIDEnd), lastVMID)
	if last < first {
		return 0, reconcile.UserError{Reason: "VMIDRangeInvalid", Message: fmt.Sprintf("MachineProvider %s: its VMIDs end at %d before they begin at %d: correct spec.proxmox.vmidEnd", x.provider.Name, last, first)}
	}
	size := last - first + 1
	start := firstCandidate(m, size)
	if from >= first && from <= last {
		start = from - first
	}
	for i := range size {
		vmid := first + (start+i)%size
		if taken[vmid] {
			continue
		}
		mine, err := x.createVMIDLease(ctx, m, vmid)
		if err != nil {
			return 0, err
		}
		if mine {
			return vmid, nil
		}
	}
	return 0, reconcile.UserError{Reason: "VMIDsExhausted", Message: fmt.Sprintf("MachineProvider %s: every VMID from %d to %d is taken: raise spec.proxmox.vmidEnd, or delete machines", x.provider.Name, first, last)}
}

// firstCandidate is where in a range of VMIDs a machine begins to look for one.
func firstCandidate(m *v1alpha1.Machine, size int) int {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(m.UID))
	return int(hash.Sum64() % uint64(size))
}

func (x *Hypervisor) createVMIDLease(ctx context.Context, m *v1alpha1.Machine, vmid int) (bool, error) {
	holder := string(m.UID)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: x.namespace, Name: kube.Name("vmid", x.provider.Name, strconv.Itoa(vmid)),
			Labels:      map[string]string{v1alpha1.LabelManagedBy: hypervisor.FunctionName, labelHolder: holder},
			Annotations: map[string]string{v1alpha1.LabelMachine: m.Namespace + "/" + m.Name},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder},
	}
	name := lease.Name
	err := x.home.Create(ctx, lease)
	if !kube.AlreadyExists(err) {
		return err == nil, err
	}
	held := &coordinationv1.Lease{}
	if err := x.home.Get(ctx, x.namespace, name, held); err != nil {
		if kube.NotFound(err) {
			return false, nil
		}
		return false, err
	}
	return held.Spec.HolderIdentity != nil && *held.Spec.HolderIdentity == holder, nil
}

// labelHolder finds the claims of a machine.
const labelHolder = "vitistack.io/holder"

// releaseVMIDs gives all VMIDs of a machine back.
func (x *Hypervisor) releaseVMIDs(ctx context.Context, m *v1alpha1.Machine) error {
	leases := &coordinationv1.LeaseList{}
	if err := x.home.List(ctx, x.namespace, labelHolder+"="+string(m.UID), leases); err != nil {
		return err
	}
	for i := range leases.Items {
		if err := x.home.Delete(ctx, &leases.Items[i]); err != nil {
			return err
		}
	}
	return nil
}
