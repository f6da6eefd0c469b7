package proxmox_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/tests/sim/proxmox"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{})
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100, "name": "first", "scsi0": "local-lvm:8", "net0": "virtio,bridge=vmbr0"})
	cases := []struct {
		reason, method, path string
		with                 params
		status, field, says  string
	}{
		{"an unknown parameter", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "cpus": 2}, "400 Parameter verification failed.", "cpus", "property is not defined in schema and the schema does not allow additional properties"},
		{"a word instead of a number", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "cores": "abc"}, "400 Parameter verification failed.", "cores", "type check ('integer') failed - got 'abc'"},
		{"a missing parameter", "POST", "/nodes/pve1/qemu", params{}, "400 Parameter verification failed.", "vmid", "property is missing and it is not optional"},
		{"a number that is too small", "POST", "/nodes/pve1/qemu", params{"vmid": 99}, "400 Parameter verification failed.", "vmid", "invalid format - value does not look like a valid VM ID\n"},
		{"a word in the property string memory", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "memory": "4Gi"}, "400 Parameter verification failed.", "memory", "invalid format - format error\nmemory.current: type check ('integer') failed - got '4Gi'\n"},
		{"a multicast address", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "net0": "virtio=01:00:00:00:00:01"}, "400 Parameter verification failed.", "net0", "invalid format - format error\nnet0.macaddr: invalid format - value does not look like a valid unicast MAC address\n\n"},
		{"an unknown key of a network interface", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "net0": "virtio,vlan=4"}, "400 Parameter verification failed.", "net0", "invalid format - invalid key in comma-separated list property: vlan\n"},
		{"an invalid VLAN", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "net0": "virtio,tag=0"}, "400 Parameter verification failed.", "net0", "invalid format - format error\nnet0.tag: value must have a minimum value of 1\n"},
		{"a value outside of the enumeration", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "bios": "uefi"}, "400 Parameter verification failed.", "bios", "value 'uefi' does not have a value in the enumeration 'seabios, ovmf'"},
		{"a host name with an underscore", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "name": "a_b"}, "400 Parameter verification failed.", "name", "invalid format - value does not look like a valid DNS name\n"},
		{"SSH keys without URL encoding", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "sshkeys": "ssh-rsa AAAA+"}, "400 Parameter verification failed.", "sshkeys", "invalid format - invalid urlencoded string: ssh-rsa AAAA+\n"},
		{"true in a query is no boolean", "DELETE", "/nodes/pve1/qemu/100?purge=true", nil, "400 Parameter verification failed.", "purge", "type check ('boolean') failed - got 'true'"},
		{"a disk on a storage for files", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "scsi0": "local:8"}, "400 Parameter verification failed.", "storage", "storage 'local' does not support vm images"},
		{"an installer as a disk", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "ide2": "local:iso/x.iso"}, "400 Parameter verification failed.", "ide2", "explicit 'media=cdrom' is required for iso images"},
		{"a VMID in use", "POST", "/nodes/pve2/qemu", params{"vmid": 100}, "500 unable to create VM 100 - VM 100 already exists on node 'pve1'", "", ""},
		{"a request for a VMID in use", "GET", "/cluster/nextid?vmid=100", nil, "400 Parameter verification failed.", "vmid", "VM 100 already exists"},
		{"a missing machine is an error 500 instead of 404", "GET", "/nodes/pve1/qemu/999/status/current", nil, "500 Configuration file 'nodes/pve1/qemu-server/999.conf' does not exist", "", ""},
		{"a machine of another node", "GET", "/nodes/pve2/qemu/100/config", nil, "500 Configuration file 'nodes/pve2/qemu-server/100.conf' does not exist", "", ""},
		{"an unknown node", "GET", "/nodes/pve9/status", nil, "500 hostname lookup 'pve9' failed - failed to get address info for: pve9: Name or service not known", "", ""},
		{"an unknown storage", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "scsi0": "nowhere:8"}, "500 storage 'nowhere' does not exist", "", ""},
		{"a method that does not exist", "POST", "/nodes/pve1/qemu/100/explode", params{}, "501 Method 'POST /nodes/pve1/qemu/100/explode' not implemented", "", ""},
		{"an update without options", "PUT", "/nodes/pve1/qemu/100/config", params{}, "500 no options specified", "", ""},
		{"a digest of another configuration", "PUT", "/nodes/pve1/qemu/100/config", params{"cores": 2, "digest": "da39a3ee"}, "500 checksum mismatch (file change by other user?)", "", ""},
		{"more balloon than memory", "PUT", "/nodes/pve1/qemu/100/config", params{"balloon": 4096}, "500 balloon value too large (must be smaller than assigned memory)", "", ""},
		{"a boot device that the machine lacks", "PUT", "/nodes/pve1/qemu/100/config", params{"boot": "order=scsi5"}, "500 invalid bootorder: device 'scsi5' does not exist'", "", ""},
		{"a user other than root sets skiplock", "PUT", "/nodes/pve1/qemu/100/config", params{"cores": 2, "skiplock": 1}, "400 Parameter verification failed.", "skiplock", "Only root may use this option."},
		{"an agent that is not configured", "GET", "/nodes/pve1/qemu/100/agent/network-get-interfaces", nil, "500 No QEMU guest agent configured", "", ""},
		{"a pool that does not exist", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "pool": "none"}, "403 Permission check failed (pool 'none' does not exist)", "", ""},
		{"a snippet cannot be uploaded", "POST", "/nodes/pve1/storage/local/download-url", params{"content": "snippets", "filename": "x.yaml", "url": "https://x"}, "400 Parameter verification failed.", "content", "value 'snippets' does not have a value in the enumeration 'iso, vztmpl, import'"},
		{"an image format that cannot be imported", "POST", "/nodes/pve1/storage/local/download-url", params{"content": "import", "filename": "x.raw.xz", "url": "https://x"}, "400 Parameter verification failed.", "filename", "invalid filename or wrong extension"},
		{"a malformed VMID in the path", "GET", "/nodes/pve1/qemu/abc/config", nil, "400 Parameter verification failed.", "vmid", "type check ('integer') failed - got 'abc'"},
		{"a body that is too large", "POST", "/nodes/pve1/qemu", params{"vmid": 101, "description": strings.Repeat("x", 600<<10)}, "501 for data too large", "", ""},
	}
	for _, tc := range cases {
		a := r.call(tc.method, tc.path, tc.with)
		if a.status != tc.status || a.Errors[tc.field] != tc.says {
			t.Errorf("%s: got %q, errors %q; want %q, %s %q", tc.reason, a.status, a.Errors, tc.status, tc.field, tc.says)
		}
	}
}

func TestNewConfigurationIsRewritten(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{})
	r.done("POST", "/nodes/pve1/qemu", params{
		"vmid": 100, "name": "vm", "cores": 2, "memory": 4096, "scsihw": "virtio-scsi-single", "scsi0": "local-lvm:10,iothread=1", "scsi1": "fast-ssd:1",
		"ide2": "local-lvm:cloudinit", "bios": "ovmf", "efidisk0": "local-lvm:1,efitype=4m,pre-enrolled-keys=1", "net0": "virtio,bridge=vmbr0,tag=7", "tags": "b,a;B", "agent": "1",
	})
	config := r.config("pve1", 100)
	for key, want := range map[string]any{
		"scsi0": "local-lvm:vm-100-disk-1,iothread=1,size=10G", "scsi1": "fast-ssd:vm-100-disk-0,size=1G", "ide2": "local-lvm:vm-100-cloudinit,media=cdrom",
		"efidisk0": "local-lvm:vm-100-disk-0,efitype=4m,pre-enrolled-keys=1,size=4M", "cores": float64(2), "memory": "4096", "tags": "a;b", "boot": "order=scsi0;net0",
	} {
		if config[key] != want {
			t.Errorf("%s is %v, want %v", key, config[key], want)
		}
	}
	for key, form := range map[string]string{
		"net0": `^virtio=BC:24:11(:[0-9A-F]{2}){3},bridge=vmbr0,tag=7$`, "smbios1": `^uuid=[0-9a-f-]{36}$`, "vmgenid": `^[0-9a-f-]{36}$`,
		"meta": `^creation-qemu=`, "digest": `^[0-9a-f]{40}$`,
	} {
		if s, _ := config[key].(string); !regexp.MustCompile(form).MatchString(s) {
			t.Errorf("%s is %q, want %s", key, s, form)
		}
	}
}

func TestVMIDIsClaimedWhenTheCallIsAccepted(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{Storages: []proxmox.Storage{{Name: "small", Type: "lvmthin", Content: []string{"images"}, Capacity: 8 << 30}}})
	won := make(chan string, 8)
	for i := range 8 {
		go func() {
			won <- r.call("POST", fmt.Sprintf("/nodes/pve%d/qemu", i%3+1), params{"vmid": 100, "name": fmt.Sprintf("vm%d", i)}).status
		}()
	}
	var statuses []string
	for range 8 {
		statuses = append(statuses, <-won)
	}
	if n := len(slices.DeleteFunc(statuses, func(s string) bool { return s != "200 OK" })); n != 1 {
		t.Errorf("%d calls claimed the same VMID", n)
	}
	if exit := r.task("POST", "/nodes/pve1/qemu", params{"vmid": 101, "scsi0": "small:4", "scsi1": "small:5"}); !strings.HasPrefix(exit, "unable to create VM 101 - lvcreate 'small/vm-101-disk-1' error:") {
		t.Errorf("a full pool ends the task with %q", exit)
	}
	if v := r.server.Volumes(); len(v) != 0 {
		t.Errorf("a failed creation has left %v", v)
	}
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 101, "scsi0": "small:4"})
}

func TestLife(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{})
	r.done("POST", "/nodes/pve1/qemu", params{"vmid": 100, "scsi0": "local-lvm:8", "memory": 2048, "ide2": "local-lvm:cloudinit", "agent": 1,
		"net0": "virtio=02:00:00:00:00:01,bridge=vmbr0", "ipconfig0": "ip=192.0.2.10/24,gw=192.0.2.1", "protection": 1})
	vm := "/nodes/pve1/qemu/100"
	r.done("POST", vm+"/status/start", params{})
	if exit := r.task("POST", vm+"/status/start", params{}); exit != "VM 100 already running" {
		t.Errorf("a second start ends with %q", exit)
	}
	var agent struct {
		Result []struct {
			Name, HardwareAddress string
			IPAddresses           []struct {
				Address string `json:"ip-address"`
			} `json:"ip-addresses"`
		}
	}
	r.get(vm+"/agent/network-get-interfaces", &agent)
	if len(agent.Result) != 2 || agent.Result[1].IPAddresses[0].Address != "192.0.2.10" {
		t.Errorf("the agent reports %+v", agent)
	}
	r.do("PUT", vm+"/config", params{"memory": "4096", "description": "new"})
	current := map[string]any{}
	r.get(vm+"/config?current=1", &current)
	if config := r.config("pve1", 100); config["memory"] != "4096" || current["memory"] != "2048" || current["description"] != "new" {
		t.Errorf("a running machine has %v, and %v later", current, config)
	}
	if exit := r.task("PUT", vm+"/resize", params{"disk": "scsi0", "size": "4G"}); exit != "shrinking disks is not supported" {
		t.Errorf("a smaller disk ends with %q", exit)
	}
	r.done("PUT", vm+"/resize", params{"disk": "scsi0", "size": "16G"})
	if a := r.call("DELETE", vm, nil); a.status != "500 can't remove VM 100 - protection mode enabled" {
		t.Errorf("a protected machine: %s", a.status)
	}
	r.do("PUT", vm+"/config", params{"protection": 0})
	if a := r.call("DELETE", vm, nil); a.status != "500 VM 100 is running - destroy failed" {
		t.Errorf("a running machine: %s", a.status)
	}
	r.done("POST", vm+"/status/shutdown", params{"forceStop": 1, "timeout": 60})
	if config := r.config("pve1", 100); config["scsi0"] != "local-lvm:vm-100-disk-0,size=16G" {
		t.Errorf("the disk is %v", config["scsi0"])
	}
	r.done("DELETE", vm+"?purge=1&destroy-unreferenced-disks=1", nil)
	if len(r.server.Machines())+len(r.server.Volumes()) != 0 {
		t.Errorf("left are %v and %v", r.server.Machines(), r.server.Volumes())
	}
}

func TestHostsAreFinite(t *testing.T) {
	t.Parallel()
	r := setUp(t, proxmox.Options{Nodes: []proxmox.Node{{Name: "pve1", CPUs: 4, Memory: 8 << 30, Bridges: []string{"vmbr0"}}, {Name: "pve2", Offline: true}}})
	cases := []struct {
		reason string
		with   params
		exit   string
	}{
		{"more memory than the host has, because QEMU allocates what the guest touches", params{"memory": 16384}, "OK"},
		{"a bridge that the host lacks", params{"net0": "virtio,bridge=vmbr9"}, "start failed: QEMU exited with code 1"},
		{"more processors than the host has", params{"cores": 8}, "MAX 4 vcpus allowed per VM on this node"},
		{"what fits", params{"memory": 4096}, "OK"},
		{"more memory than the others leave", params{"memory": 4096}, "OK"},
	}
	for i, tc := range cases {
		tc.with["vmid"] = 100 + i
		r.done("POST", "/nodes/pve1/qemu", tc.with)
		if exit := r.task("POST", fmt.Sprintf("/nodes/pve1/qemu/%d/status/start", 100+i), params{}); exit != tc.exit {
			t.Errorf("%s: the start ends with %q, want %q", tc.reason, exit, tc.exit)
		}
	}
	var host struct{ Memory struct{ Total, Used int64 } }
	if r.get("/nodes/pve1/status", &host); host.Memory.Used != 8<<30 || host.Memory.Total != 8<<30 {
		t.Errorf("the host and a quarter of the running machines use %+v", host.Memory)
	}
	if a := r.call("POST", "/nodes/pve2/qemu", params{"vmid": 200}); a.status != "595 No route to host" {
		t.Errorf("a node that is offline: %s", a.status)
	}
}
