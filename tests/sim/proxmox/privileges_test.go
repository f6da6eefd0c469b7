package proxmox_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

// TestPrivileges makes each call that the stack makes with exactly the privileges that it needs, and again without each of
// them. README.md has the sources.
func TestPrivileges(t *testing.T) {
	t.Parallel()
	const vms, pve1, lvm, local, zone, root = "/vms", "/nodes/pve1", "/storage/local-lvm", "/storage/local", "/sdn/zones/localnetwork", "/"
	machine := params{"vmid": 101, "cores": 2, "memory": 2048, "scsi0": "local-lvm:8", "net0": "virtio,bridge=vmbr0", "ide2": "local-lvm:cloudinit", "name": "vm"}
	image := params{"content": "import", "filename": "talos.qcow2", "url": "https://factory.example/talos.qcow2"}
	for name, tc := range map[string]struct {
		verb, path string
		with       params
		// needs are the privileges as path and name, of which none can be left out.
		needs []string
	}{
		"Create": {"POST", "/nodes/pve1/qemu", machine, []string{
			vms + " VM.Allocate", vms + " VM.Config.CPU", vms + " VM.Config.Memory", vms + " VM.Config.Network", vms + " VM.Config.Options", lvm + " Datastore.AllocateSpace", zone + " SDN.Use",
		}},
		"Read":     {"GET", "/nodes/pve1/qemu/100/config", nil, []string{vms + " VM.Audit"}},
		"State":    {"GET", "/nodes/pve1/qemu/100/status/current", nil, []string{vms + " VM.Audit"}},
		"Memory":   {"PUT", "/nodes/pve1/qemu/100/config", params{"memory": 4096}, []string{vms + " VM.Config.Memory"}},
		"Cores":    {"PUT", "/nodes/pve1/qemu/100/config", params{"cores": 4}, []string{vms + " VM.Config.CPU"}},
		"Tags":     {"PUT", "/nodes/pve1/qemu/100/config", params{"tags": "a"}, []string{vms + " VM.Config.Options"}},
		"Grow":     {"PUT", "/nodes/pve1/qemu/100/resize", params{"disk": "scsi0", "size": "16G"}, []string{vms + " VM.Config.Disk"}},
		"Start":    {"POST", "/nodes/pve1/qemu/100/status/start", params{}, []string{vms + " VM.PowerMgmt"}},
		"Shutdown": {"POST", "/nodes/pve1/qemu/100/status/shutdown", params{}, []string{vms + " VM.PowerMgmt"}},
		"Delete":   {"DELETE", "/nodes/pve1/qemu/100", nil, []string{vms + " VM.Allocate"}},
		"Upload":   {"POST", "/nodes/pve1/storage/local/download-url", image, []string{local + " Datastore.AllocateTemplate", pve1 + " Sys.AccessNetwork"}},
		"Anywhere": {"POST", "/nodes/pve1/storage/local/download-url", image, []string{local + " Datastore.AllocateTemplate", root + " Sys.Audit", root + " Sys.Modify"}},
		"Discard":  {"DELETE", "/nodes/pve1/storage/local/content/local:iso/talos.iso", nil, []string{local + " Datastore.Allocate"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for missing := range slices.Values(append([]string{""}, tc.needs...)) {
				r := setUp(t, proxmox.Options{})
				r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100, "scsi0": "local-lvm:8"})
				r.done("POST", "/nodes/pve1/storage/local/download-url", params{"content": "iso", "filename": "talos.iso", "url": "https://factory.example/talos.iso"})
				grants := map[string][]string{}
				for _, need := range tc.needs {
					path, privilege, _ := strings.Cut(need, " ")
					if need != missing {
						grants[path] = append(grants[path], privilege)
					}
				}
				var list []proxmox.Grant
				for path, privileges := range grants {
					list = append(list, proxmox.Grant{Path: path, Privileges: privileges})
				}
				r.server.SetUser(proxmox.User{Name: "viti@pve", Password: "pass", Grants: list})
				status := r.call(tc.verb, tc.path, tc.with).status
				if isRefused := strings.HasPrefix(status, "403 "); isRefused != (missing != "") || missing == "" && status != "200 OK" {
					t.Errorf("without %q: %s %s answers %q", missing, tc.verb, tc.path, status)
				}
			}
		})
	}
}

// TestTagsInPool creates machines with tags in a pool that grants everything.
func TestTagsInPool(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{"8.4.14": "OK", "9.1.3": "unable to create VM 100 - Permission check failed (/vms/100, VM.Config.Options)"} {
		r := setUp(t, proxmox.Options{Version: version, Pools: []string{"tenants"}})
		r.server.SetUser(proxmox.User{Name: "viti@pve", Grants: []proxmox.Grant{{Path: "/pool/tenants", Privileges: proxmox.Administrator}}})
		if exit := r.task("POST", "/nodes/pve1/qemu", params{"vmid": 100, "pool": "tenants", "tags": "a"}); strings.TrimSpace(exit) != want {
			t.Errorf("Proxmox VE %s: the creation ends with %q, want %q", version, exit, want)
		}
		r.done("POST", "/nodes/pve1/qemu", params{"vmid": 101, "pool": "tenants"})
		r.do("PUT", "/nodes/pve1/qemu/101/config", params{"tags": "a"})
	}
}

// TestTasksAreForgotten reads a task that Proxmox VE has no longer.
func TestTasksAreForgotten(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{})
	a := r.call("GET", "/nodes/pve1/tasks/UPID:pve1:0000C0DE:00000001:65000000:qmstart:100:viti@pve:/status", nil)
	if !strings.HasPrefix(a.status, "400 ") || a.Errors["upid"] != "no such task" {
		t.Errorf("got %q, %v", a.status, a.Errors)
	}
}
