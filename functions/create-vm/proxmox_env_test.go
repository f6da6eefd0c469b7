package main

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	proxmoxsim "github.com/vitistack/stack/tests/sim/proxmox"
)

const (
	pveUser   = "viti@pve"
	pveToken  = pveUser + "!stack"
	pveSecret = "7d3c7d0a-5a0f-4a07-9a9b-2f0c4f6a3f11"
)

// pveGrants are exactly the rights that the README requires.
var pveGrants = []proxmoxsim.Grant{
	{Path: "/vms", Privileges: []string{
		"VM.Allocate", "VM.Audit", "VM.Clone", "VM.Config.CDROM", "VM.Config.CPU", "VM.Config.Cloudinit", "VM.Config.Disk", "VM.Config.HWType",
		"VM.Config.Memory", "VM.Config.Network", "VM.Config.Options", "VM.GuestAgent.Audit", "VM.PowerMgmt",
	}},
	{Path: "/storage", Privileges: []string{"Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit"}},
	{Path: "/storage/local", Privileges: []string{"Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.AllocateTemplate", "Datastore.Audit"}},
	{Path: "/nodes", Privileges: []string{"Sys.Audit", "Sys.AccessNetwork"}},
	{Path: "/sdn/zones/localnetwork", Privileges: []string{"SDN.Use"}},
}

// servePVE starts a simulated Proxmox VE.
func (e *env) servePVE(options proxmoxsim.Options) (*proxmoxsim.Server, proxmoxsim.Endpoint) {
	e.Helper()
	if !slices.ContainsFunc(options.Users, func(u proxmoxsim.User) bool { return u.Name == pveUser }) {
		options.Users = append(options.Users, proxmoxsim.User{Name: pveUser, Grants: pveGrants})
	}
	options.Tokens = append(options.Tokens, proxmoxsim.Token{ID: pveToken, Secret: pveSecret})
	sim, err := proxmoxsim.New(options)
	if err != nil {
		e.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.Cleanup(func() {
		cancel()
		if err := sim.Close(); err != nil {
			e.Error(err)
		}
	})
	end, err := sim.Start(ctx, "127.0.0.1:0")
	if err != nil {
		e.Fatal(err)
	}
	return sim, end
}

// pve starts a simulated Proxmox VE, and creates a MachineProvider for it.
func (e *env) pve(options proxmoxsim.Options, change func(*v1alpha1.MachineProvider)) (*proxmoxsim.Server, *v1alpha1.MachineProvider) {
	e.Helper()
	sim, end := e.servePVE(options)
	if err := e.Kube.Create(e.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: defaultNamespace}}); err != nil && !kube.AlreadyExists(err) {
		e.Fatal(err)
	}
	e.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "proxmox"}, Data: map[string][]byte{
		"tokenID": []byte(pveToken), "tokenSecret": []byte(pveSecret), "ca.crt": end.CA,
	}})
	p := &v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: "proxmox-" + e.Namespace}, Spec: v1alpha1.MachineProviderSpec{
		Type: v1alpha1.ProviderProxmox, Endpoint: &v1alpha1.ProviderEndpoint{URL: end.URL},
		CredentialsRef: &v1alpha1.SecretReference{Namespace: e.Namespace, Name: "proxmox"},
	}}
	if change != nil {
		change(p)
	}
	if err := e.Kube.Create(e.Context(), p); err != nil {
		e.Fatal(err)
	}
	e.dropProvider(p.Name)
	return sim, p
}

// newPVE returns an environment whose machines are on a Proxmox VE of its own, and the simulator of that. change changes its
// MachineProvider, and may be nil.
func newPVE(t *testing.T, o proxmoxsim.Options, change func(*v1alpha1.MachineProvider)) (e *env, sim *proxmoxsim.Server) {
	t.Helper()
	e = newEnv(t, func(e *env) *hypervisortest.Site {
		server, p := e.pve(o, change)
		sim = server
		return pveSite(e, server, p.Name)
	})
	return e, sim
}

// defaultNamespace is the namespace where VMIDs are claimed.
const defaultNamespace = "vitistack-system"

// vmidOf returns the VMID in the status of a Machine, or 0.
func vmidOf(m *v1alpha1.Machine) (vmid int) {
	_, _ = fmt.Sscan(path.Base(m.Status.ProviderID), &vmid)
	return vmid
}

// preferredVMID returns the VMID in a range that a Machine claims if it is unused.
func preferredVMID(m *v1alpha1.Machine, first, last uint64) int {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(m.UID))
	return int(first + hash.Sum64()%(last-first+1))
}

// cdFile returns what the names of the cloud-init CDs of a Machine start with.
func cdFile(m *v1alpha1.Machine) string { return "vitistack-" + string(m.UID) + "-" }

// proxmoxSite returns the site of Proxmox VE.
func proxmoxSite(r *env) *hypervisortest.Site {
	started := &startedGuests{}
	sim, p := r.pve(proxmoxsim.Options{Guests: proxmoxGuests{started}}, nil)
	s := pveSite(r, sim, p.Name)
	s.FoundUserData = started.of
	s.HoldsUserData = func(m *v1alpha1.Machine) bool {
		cd := slices.ContainsFunc(sim.Volumes(), func(v string) bool { return strings.Contains(v, cdFile(m)) })
		return cd || slices.ContainsFunc(sim.Machines(), func(vm proxmoxsim.Machine) bool { return strings.Contains(vm.Config["ide2"], cdFile(m)) })
	}
	return s
}

type proxmoxGuests struct{ *startedGuests }

func (s proxmoxGuests) PowerOn(g proxmoxsim.Guest) error {
	s.Store(g.Name, g.UserData)
	return nil
}

func pveSite(r *env, sim *proxmoxsim.Server, provider string) *hypervisortest.Site {
	of := func(m *v1alpha1.Machine) (found []proxmoxsim.Machine) {
		for _, vm := range sim.Machines() {
			if strings.Contains(vm.Config["description"]+vm.Config["tags"], string(m.UID)) {
				found = append(found, vm)
			}
		}
		return found
	}
	s := &hypervisortest.Site{Provider: provider, CreateRequest: "POST /api2/json/nodes/pve1/qemu", OccupiedReason: "MachineRunning"}
	s.VMs = func(m *v1alpha1.Machine) (ids []string) {
		for _, vm := range of(m) {
			ids = append(ids, fmt.Sprint(vm.ID))
		}
		return ids
	}
	s.Left = func(m *v1alpha1.Machine) (left []string) {
		left = s.VMs(m)
		for _, volume := range sim.Volumes() {
			if vmid := vmidOf(m); strings.Contains(volume, string(m.UID)) || (vmid != 0 && strings.Contains(volume, fmt.Sprintf("vm-%d-", vmid))) {
				left = append(left, volume)
			}
		}
		for _, uid := range v1alpha1.UIDs(m) {
			leases := &coordinationv1.LeaseList{}
			if err := r.Kube.List(r.Context(), defaultNamespace, "vitistack.io/holder="+uid, leases); err != nil {
				r.Error(err)
			}
			for _, l := range leases.Items {
				left = append(left, "Lease "+l.Name)
			}
		}
		return left
	}
	s.Foreign = func(m *v1alpha1.Machine) func() bool {
		vmid := vmidOf(m)
		if vmid == 0 {
			vmid = preferredVMID(m, 10000, 99999)
		}
		others := map[int]map[string]string{100: {"name": m.Name, "memory": "1024"}, vmid: {"name": "other", "memory": "1024"}}
		for id, config := range others {
			if err := sim.AddMachine(proxmoxsim.Machine{ID: id, Node: "pve3", Config: maps.Clone(config)}, ""); err != nil {
				r.Fatal(err)
			}
		}
		return func() bool {
			same := 0
			for _, vm := range sim.Machines() {
				if config := others[vm.ID]; config != nil && maps.Equal(vm.Config, config) && vm.Starts == 0 {
					same++
				}
			}
			return same == len(others)
		}
	}
	s.Destroy = func(m *v1alpha1.Machine) {
		if err := sim.Destroy(vmidOf(m)); err != nil {
			r.Fatal(err)
		}
	}
	s.Starts = func(m *v1alpha1.Machine) (n int) {
		for _, vm := range of(m) {
			n += vm.Starts
		}
		return n
	}
	s.Sizes = func(m *v1alpha1.Machine) (cpus int, root string) {
		for _, vm := range of(m) {
			_, _ = fmt.Sscan(cmp.Or(vm.Pending["cores"], vm.Config["cores"]), &cpus)
			_, size, _ := strings.Cut(vm.Config["scsi0"], "size=")
			root, _, _ = strings.Cut(size, ",")
			root += "i"
		}
		return cpus, root
	}
	return s
}
