package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// creation creates virtual machines.
type creation struct {
	api
	settings
	vmids  vmids
	images images
	hosts  hosts
	cds    cds
}

// createMachine creates the virtual machine of a machine, one step in each call: it claims a
// VMID and a host, which the caller records, then brings what the first boot needs to the
// host, and then creates the virtual machine. before is the task that has ended, or nil.
func (c creation) createMachine(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, all inventory, before *v1alpha1.ProviderTask) (hypervisor.State, error) {
	if err := cmp.Or(want.UserDataError, checkSupported(m), c.checkSnippet(want.UserData)); err != nil {
		return hypervisor.State{}, err
	}
	m.Status.VMName, m.Status.NodeName, m.Status.Disks = "", "", nil
	first := decideFirstBoot(m, want)
	all, err := c.cds.restrictStorages(ctx, all, first)
	if err != nil {
		return hypervisor.State{}, err
	}
	source, err := c.images.findTemplate(ctx, m, all)
	if err != nil {
		return hypervisor.State{}, err
	}
	where, changed, err := c.ensurePlace(ctx, m, want, all, source, before)
	if err != nil {
		return hypervisor.State{}, err
	}
	if changed {
		m.Status.ProviderID = formatProviderID(where.node, where.vmid)
		return taskState(m, &v1alpha1.ProviderTask{ID: strconv.Itoa(where.vmid), Action: actionClaim}), nil
	}
	image, fetching, err := c.images.ensure(ctx, m, all, where.node)
	if err != nil || fetching != nil {
		return taskState(m, fetching), err
	}
	if first.iso() && source.VMID == 0 {
		volume, t, err := c.cds.ensure(ctx, m, all, where.node, first)
		if err != nil {
			return hypervisor.State{}, err
		}
		if t != nil {
			return taskState(m, taskOf(actionUpload, t)), nil
		}
		first.options = map[string]string{cloudDrive: volume + ",media=cdrom"}
	}
	// The last check before something is created: the Machine is not deleted, no other delivery has written its place, and its spec is current.
	if err := c.vmids.home.CheckUnchanged(ctx, m); err != nil {
		return hypervisor.State{}, err
	}
	var t *pve.Task
	action := actionCreate
	if source.VMID != 0 {
		action = actionClone
		t, err = c.clone(ctx, m, where, source)
	} else {
		t, err = c.create(ctx, m, want, where, image, first)
	}
	if hasMessage(err, "already exists") {
		at := cmp.Or(source.Node, where.node) // the host that clones a template is that of the template
		return c.adoptOrSkipVMID(ctx, m, want, where, at, all)
	}
	return taskState(m, taskOf(action, t)), err
}

// ensurePlace returns the place of a machine. It lists the claims before a machine claims its place, and once afterwards. Tasks that begin
// then prove that the claim was the first, so that what follows them needs no list while the host can still take the machine.
func (c creation) ensurePlace(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, all inventory, source inventoryItem, before *v1alpha1.ProviderTask) (where placement, changed bool, err error) {
	if before != nil && (before.Action == actionDownload || before.Action == actionUpload) {
		where, err = c.hosts.choose(ctx, m, want, all, source, nil)
		node, vmid := recordedPlacement(m)
		if err == nil && vmid != 0 && where.node == node {
			where.vmid = vmid
			return where, false, nil
		}
	}
	return c.claimPlace(ctx, m, want, all, source)
}

// claimPlace chooses a host for a machine and claims a VMID and memory of the host. It reports whether they differ from what the machine has
// recorded. A machine that no host can take withdraws its claim. After failures, hosts that could not start the machine are left out.
func (c creation) claimPlace(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, all inventory, source inventoryItem) (where placement, changed bool, err error) {
	claims, err := c.vmids.listClaims(ctx)
	if err != nil {
		return placement{}, false, err
	}
	had := claims.of(m)
	full := fullHosts(m, had)
	where, err = c.hosts.choose(ctx, m, want, all.withoutHosts(full), source, claims)
	if _, isUserError := reconcile.AsUserError(err); isUserError {
		err = reconcile.MostUrgent(err, c.vmids.withdrawClaim(ctx, m, had))
	}
	if err != nil {
		return placement{}, false, err
	}
	node, vmid := recordedPlacement(m)
	claim := memoryClaim{node: where.node, vmid: vmid, bytes: megabytes(want) << 20, fullHosts: strings.Join(full, ",")}
	if vmid == 0 {
		taken := all.vmids()
		maps.Copy(taken, claims.vmids(m))
		where.vmid, err = c.vmids.claim(ctx, m, taken, claim)
		return where, true, err
	}
	where.vmid = vmid
	moved, err := c.vmids.moveClaim(ctx, m, had, claim)
	return where, moved || node != where.node, err
}

// adoptOrSkipVMID handles a VMID that is in use although the user sees no virtual machine with
// it. It is the machine's own if an answer was lost. Otherwise the machine gets the next VMID. at is the host
// that creates it. A user whose rights come from a pool cannot read a virtual machine that is being created, because Proxmox VE adds it to the
// pool at the end, but sees the own tasks.
func (c creation) adoptOrSkipVMID(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, where placement, at string, all inventory) (hypervisor.State, error) {
	vmid := where.vmid
	vm, err := c.read(ctx, at, vmid)
	if isForbidden(err) {
		creates, failure := c.creationTask(ctx, m, at, vmid)
		if failure != nil || creates != "" {
			return taskState(m, &v1alpha1.ProviderTask{ID: creates, Action: actionCreate}), failure
		}
		vm, err = c.read(ctx, where.node, vmid) // the task may have ended since
	}
	if err == nil && (vm.isOf(m) || vm.isClaimedBy(m)) {
		return taskState(m, taskOf(actionCreate, nil)), nil
	}
	if err != nil && !isMissing(err) && !isForbidden(err) {
		return hypervisor.State{}, err
	}
	return c.skipVMID(ctx, m, want, where, all)
}

// skipVMID claims the next VMID for a machine whose VMID belongs to a virtual machine that the user cannot see.
func (c creation) skipVMID(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, where placement, all inventory) (hypervisor.State, error) {
	claims, err := c.vmids.listClaims(ctx)
	if err != nil {
		return hypervisor.State{}, err
	}
	taken := all.vmids()
	maps.Copy(taken, claims.vmids(m))
	taken[where.vmid] = true
	next, err := c.vmids.claim(ctx, m, taken, memoryClaim{node: where.node, vmid: where.vmid + 1, bytes: megabytes(want) << 20, fullHosts: claims.of(m).fullHosts})
	if err != nil {
		return hypervisor.State{}, err
	}
	m.Status.ProviderID = formatProviderID(where.node, next)
	return hypervisor.State{}, hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "VMIDTaken", Message: fmt.Sprintf("VMID %d belongs to a virtual machine that the user of MachineProvider %s cannot see; VMID %d is tried next: "+
		"reserve VMIDs for this provider in spec.proxmox.vmidStart and vmidEnd, or grant VM.Audit on /vms", where.vmid, c.provider.Name, next)}}
}

// creationTask returns the task at work on a node that may create the virtual machine of a machine under a VMID, or nothing. A task that
// clones has the VMID of the template, so any of them counts.
func (c creation) creationTask(ctx context.Context, m *v1alpha1.Machine, node string, vmid int) (upid string, err error) {
	filter := "typefilter=qmcreate&vmid=" + strconv.Itoa(vmid)
	if isClone(m) {
		filter = "typefilter=qmclone"
	}
	active, err := c.activeTasks(ctx, node, filter)
	return cmp.Or(active...), err
}

// create creates a virtual machine with disks of its own.
func (c creation) create(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, where placement, image string, first firstBootConfig) (*pve.Task, error) {
	options := c.creationOptions(m, want, first)
	if options[cloudDrive] == "" {
		options[cloudDrive] = where.storages[0] + ":cloudinit"
	}
	for _, more := range []map[string]string{updatableOptions(m, want), newDiskOptions(m, want, where.storages, image)} {
		for key, value := range more {
			options[key] = value
		}
	}
	if c.options.Pool != "" {
		options["pool"] = c.options.Pool
		// Proxmox VE checks the privilege for tags before the virtual machine is in the pool. The first update writes the tags.
		delete(options, "tags")
	}
	var given []pve.VirtualMachineOption
	for key, value := range options {
		given = append(given, pve.VirtualMachineOption{Name: key, Value: value})
	}
	node := (&pve.Node{}).New(c.client, where.node)
	return node.NewVirtualMachine(ctx, where.vmid, given...)
}

// clone copies a template. The copy has the options of the template at first, and the
// description that marks it as the machine's.
func (c creation) clone(ctx context.Context, m *v1alpha1.Machine, where placement, source inventoryItem) (*pve.Task, error) {
	options := &pve.VirtualMachineCloneOptions{NewID: where.vmid, Name: hostname(m), Description: machineDescription(m), Pool: c.options.Pool}
	if !c.options.LinkedClone {
		options.Full, options.Storage = true, where.storages[0]
	}
	if where.node != source.Node {
		options.Target = where.node
	}
	from := c.vmClient(&virtualMachine{id: source.VMID, node: source.Node})
	_, t, err := from.Clone(ctx, options)
	return t, err
}
