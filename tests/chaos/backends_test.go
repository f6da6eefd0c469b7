package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/engine"
)

// uidIn matches the UID of a machine in a description.
var uidIn = regexp.MustCompile(`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// proxmoxVM is a virtual machine of Proxmox VE.
type proxmoxVM struct {
	ID     int
	Config map[string]string
}

// uid returns the UID of the Machine that it was created for.
func (vm proxmoxVM) uid() string { return uidIn.FindString(vm.Config["description"]) }

// unborn reports whether only the VMID is claimed: Proxmox VE writes the owner after it has created
// the disks.
func (vm proxmoxVM) unborn() bool { return vm.Config["lock"] != "" && vm.Config["description"] == "" }

// proxmoxCluster is the state of Proxmox VE.
type proxmoxCluster struct {
	Machines []proxmoxVM
	Volumes  []struct {
		Key    struct{ Name string }
		Volume struct{ VMID int }
	}
}

func (w *env) proxmox() (c proxmoxCluster) {
	w.t.Helper()
	w.read(w.simState("proxmox.json"), &c)
	return c
}

// talosCluster is the state of the etcd whose nodes share an authority.
type talosCluster struct {
	Key  string
	Etcd *struct {
		ID      uint64
		Members []struct {
			ID      uint64
			Name    string
			Learner bool
		}
	}
}

func (w *env) talosClusters() (all []talosCluster) {
	w.t.Helper()
	paths, err := filepath.Glob(w.simState("talos", "clusters", "*.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, path := range paths {
		var c talosCluster
		if w.read(path, &c); c.Etcd != nil {
			all = append(all, c)
		}
	}
	return all
}

// read reads the state of a simulator, and keeps to unchanged if there is none. It retries an
// incomplete file, because not all simulators replace their files atomically.
func (w *env) read(path string, to any) {
	w.t.Helper()
	const patience = 20
	var err error
	for range patience {
		var text []byte
		if text, err = os.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	w.t.Fatalf("read %s: %v", path, err)
}

// backendMismatch returns a description of something that a backend has without an owner, or lacks
// although its owner exists. It is empty if there is none.
func (w *env) backendMismatch() string {
	w.t.Helper()
	var wrong []string
	for name, both := range w.holdings() {
		for _, key := range slices.Sorted(maps.Keys(both.there)) {
			if !both.wanted[key] && (name != "ipam" || !w.lossy) {
				wrong = append(wrong, fmt.Sprintf("%s has something of %s, which is deleted", name, key))
			}
		}
		for _, key := range slices.Sorted(maps.Keys(both.wanted)) {
			if !both.there[key] {
				wrong = append(wrong, fmt.Sprintf("%s has nothing of %s, which exists", name, key))
			}
		}
	}
	slices.Sort(wrong)
	return strings.Join(wrong, "; ")
}

// holding has the owners of what a backend has, and of what it must have.
type holding struct{ there, wanted map[string]bool }

// holdings returns the holding of each backend.
func (w *env) holdings() map[string]holding {
	w.t.Helper()
	all := map[string]holding{}
	for _, name := range append(slices.Clone(simulators), "ipam", "proxmox's volumes") {
		if name != "talos" {
			all[name] = holding{map[string]bool{}, map[string]bool{}}
		}
	}
	for _, nn := range w.list(engine.NetworkNamespaces) {
		provider, _, _ := unstructured.NestedString(nn.Object, "spec", "networkProvisioning", "provider")
		if b, ok := all[strings.TrimPrefix(provider, "tour-")]; ok {
			b.wanted[string(nn.GetUID())] = true
		}
	}
	proxmox := w.proxmox()
	for _, vm := range proxmox.Machines {
		all["proxmox"].there[vm.uid()] = true
		all["proxmox's volumes"].wanted[fmt.Sprint(vm.ID)] = true
	}
	for _, v := range proxmox.Volumes {
		if v.Volume.VMID != 0 {
			all["proxmox's volumes"].there[fmt.Sprint(v.Volume.VMID)] = true
		}
	}
	for _, vm := range w.list(engine.VirtualMachines) {
		all["kubevirt"].there[vm.GetAnnotations()["vitistack.io/uid"]] = true
	}
	for _, m := range w.list(engine.Machines) {
		provider, _, _ := unstructured.NestedString(m.Object, "spec", "providerRef", "name")
		switch {
		case phaseOf(&m) != "Running" && phaseOf(&m) != "Stopped": // a mistake prevented its creation
		case provider == "proxmox":
			all["proxmox"].wanted[string(m.GetUID())] = true
		default:
			all["kubevirt"].wanted[string(m.GetUID())] = true
		}
	}
	w.addNetworkHoldings(all)
	w.reservations(all["kea"])
	return all
}

// addNetworkHoldings reads the segments of the sources of networks.
func (w *env) addNetworkHoldings(all map[string]holding) {
	w.t.Helper()
	for _, name := range []string{"nam", "ipam"} {
		var segments map[string]struct{ GoneAt time.Time }
		w.read(w.simState(name+".json"), &segments)
		for uid, s := range segments {
			if s.GoneAt.IsZero() || time.Now().Before(s.GoneAt) {
				all[name].there[uid] = true
			}
		}
	}
	type thing struct {
		CustomFields map[string]any `json:"custom_fields"`
	}
	var library struct{ Prefixes, VLANs, Addresses map[string]thing }
	w.read(w.simState("netbox.json"), &library)
	for _, kind := range []map[string]thing{library.Prefixes, library.VLANs, library.Addresses} {
		for _, one := range kind {
			if uid, ok := one.CustomFields["vitistack_uid"].(string); ok {
				all["netbox"].there[uid] = true
			}
		}
	}
}

// reservations compares the reservations of Kea with the interfaces that need one, by MAC address.
func (w *env) reservations(both holding) {
	w.t.Helper()
	for _, path := range []string{w.simState("kea", "kea-dhcp4.conf"), w.simState("kea.json")} {
		var config map[string]any
		w.read(path, &config)
		collect(config, both.there)
	}
	for _, nc := range w.list(engine.NetworkConfigurations) {
		interfaces, _, _ := unstructured.NestedSlice(nc.Object, "status", "networkInterfaces")
		for _, one := range interfaces {
			mac, _, _ := unstructured.NestedString(one.(map[string]any), "macAddress")
			if reserved, _, _ := unstructured.NestedBool(one.(map[string]any), "dhcpReserved"); reserved {
				both.wanted[strings.ToLower(mac)] = true
			}
		}
	}
}

// collect returns the MAC addresses of all reservations in a configuration.
func collect(in any, macs map[string]bool) {
	switch in := in.(type) {
	case map[string]any:
		if mac, ok := in["hw-address"].(string); ok {
			macs[strings.ToLower(mac)] = true
		}
		for _, v := range in {
			collect(v, macs)
		}
	case []any:
		for _, v := range in {
			collect(v, macs)
		}
	}
}
