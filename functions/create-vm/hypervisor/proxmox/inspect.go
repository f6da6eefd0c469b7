package proxmox

import (
	"context"
	"slices"
	"strings"

	pve "github.com/luthermonson/go-proxmox"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Inspect implements hypervisor.Interface.
func (x *Hypervisor) Inspect(ctx context.Context) (hypervisor.Health, error) {
	var version pve.Version
	if err := x.client.Get(ctx, "/version", &version); err != nil {
		return hypervisor.Health{}, x.toUserError(err)
	}
	all, err := x.readInventory(ctx)
	if err != nil {
		return hypervisor.Health{}, x.toUserError(err)
	}
	if err := checkRelease(version.Version); err != nil {
		return hypervisor.Health{}, err
	}
	h := hypervisor.Health{Version: version.Version}
	for _, r := range all {
		if r.Type != "node" {
			continue
		}
		n := v1alpha1.ProviderNode{
			Name: r.Node, Ready: r.online(), CPU: *resource.NewQuantity(int64(r.MaxCPU), resource.DecimalSI), Memory: *resource.NewQuantity(r.MaxMem, resource.BinarySI),
		}
		if r.online() {
			n.CPUUsed = resource.NewMilliQuantity(int64(r.CPU*r.MaxCPU*1000), resource.DecimalSI)
			n.MemoryUsed = resource.NewQuantity(r.Mem, resource.BinarySI)
		}
		h.Nodes = append(h.Nodes, n)
	}
	if len(h.Nodes) == 0 {
		return hypervisor.Health{}, reconcile.UserError{Reason: "PermissionDenied", Message: "Proxmox VE shows no node: grant Sys.Audit on /nodes"}
	}
	missing, err := x.access.missing(ctx, h.Version, all)
	if err != nil {
		return hypervisor.Health{}, x.toUserError(err)
	}
	h.MissingPrivileges = append([]string{}, missing...)
	if h.SpoofProtection, err = x.inspectSpoofing(ctx); err != nil {
		return hypervisor.Health{}, x.toUserError(err)
	}
	slices.SortFunc(h.Nodes, func(a, b v1alpha1.ProviderNode) int { return strings.Compare(a.Name, b.Name) })
	return h, nil
}
