package changes

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/tests/stand/engine"
)

// dryDelete returns the answer of the API server to a deletion, which it does not make.
func (w *world) dryDelete(s subject) error {
	return w.client(s).Delete(w.Context(), s.name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
}

// instance checks a field of the running instance of KubeVirt. What the guest has is in its status. Its spec also has what waits for a
// live migration.
func instance(name, path string, want any) func(*world) string {
	return func(w *world) string {
		return is(w.field(subject{engine.Instances, site, name, ""}, path), want)
	}
}

// option checks an option of the virtual machine of Proxmox VE that runs. A change that waits for a start
// is not in it.
func option(name, key, part string) func(*world) string {
	return func(w *world) string { return has(","+w.pve(name)[key]+",", part) }
}

func machineRows() []row {
	rows := []row{
		{field: "resources.cpu.cores", on: "KubeVirt", to: "3", check: instance("on-kubevirt", "status.currentCPUTopology.cores", 3)},
		{field: "resources.cpu.threads", on: "KubeVirt", to: "2", check: instance("on-kubevirt", "status.currentCPUTopology.threads", 2)},
		{field: "resources.cpu.sockets", on: "KubeVirt", to: "2", check: instance("on-kubevirt", "status.currentCPUTopology.sockets", 2)},
		{field: "resources.memory.size", on: "KubeVirt", to: "6Gi", check: instance("on-kubevirt", "status.memory.guestRequested", "6Gi")},
		{field: "resources.cpu.cores", on: "Proxmox VE", to: "3", check: option("on-proxmox", "cores", "6")},
		{field: "resources.cpu.threads", on: "Proxmox VE", to: "2", check: option("on-proxmox", "cores", "6")},
		{field: "resources.cpu.sockets", on: "Proxmox VE", to: "2", check: option("on-proxmox", "sockets", "2")},
		{field: "resources.memory.size", on: "Proxmox VE", to: "6Gi", check: option("on-proxmox", "memory", "6144")},
		{field: "template", on: "KubeVirt", to: "medium", check: claimSize("on-kubevirt-root", "40Gi")},
		{field: "template", on: "Proxmox VE", to: "medium", check: option("on-proxmox", "scsi0", "size=40G")},
		{field: "disks[].name", on: "KubeVirt", at: "disks[1].name", to: "data", with: map[string]string{"disks[1].size": "3Gi"}, check: claimSize("on-kubevirt-data", "3Gi")},
		{field: "disks[].name", on: "Proxmox VE", at: "disks[1].name", to: "data", with: map[string]string{"disks[1].size": "3Gi"}, check: option("on-proxmox", "scsi2", "size=3G")},
		{field: "disks[].size", on: "KubeVirt", to: "5Gi", check: claimSize("on-kubevirt-scratch", "5Gi")},
		{field: "disks[].size", on: "Proxmox VE", to: "5Gi", check: option("on-proxmox", "scsi1", "size=5G")},
		{field: "protected", on: "KubeVirt", to: "true", check: deletionRefused("KubeVirt")},
		{field: "protected", on: "Proxmox VE", to: "true", check: option("on-proxmox", "protection", "1")},
		{field: "powerState", on: "KubeVirt", to: "Stopped", proof: "functions/create-vm TestContract"},
		{field: "powerState", on: "Proxmox VE", to: "Stopped", proof: "functions/create-vm TestContract"},
	}
	for _, on := range []string{"KubeVirt", "Proxmox VE"} {
		s := subjects[on]
		rows = append(rows, row{field: "restartToken", on: on, to: "null", check: func(w *world) string {
			return is(w.field(s, "status.restartToken"), restartToken)
		}})
		rows = append(rows, fixedMachineRows(on)...)
	}
	return rows
}

// claimSize checks the requested size of a PersistentVolumeClaim.
func claimSize(name, want string) func(*world) string {
	return func(w *world) string {
		return is(w.field(subject{engine.Claims, site, name, ""}, "spec.resources.requests.storage"), want)
	}
}

// fixedMachineRows are the fields that a virtual machine keeps from its creation.
func fixedMachineRows(on string) (rows []row) {
	for _, r := range []row{
		{field: "bootOrder", to: "[network]"},
		{field: "cloudInit.networkData", to: "'version: 2'"},
		{field: "cloudInit.userData", to: "'#cloud-config'"},
		{field: "cloudInit.secretRef.name", to: "other"},
		{field: "cloudInit.secretRef.key", to: "other", with: map[string]string{"cloudInit.secretRef.name": "other"}},
		{field: "domain.features.acpi", to: "false"},
		{field: "domain.features.apic", to: "false"},
		{field: "domain.features.hyperv", to: "true"},
		{field: "domain.firmware.bootloader.efi", to: "true"},
		{field: "domain.firmware.bootloader.secureBoot", to: "true", with: map[string]string{"domain.firmware.bootloader.efi": "true"}},
		{field: "domain.machine.type", to: "pc-i440fx"},
		{field: "networkNamespaceName", to: "other"},
		{field: "nodeName", to: "other"},
		{field: "os.architecture", to: "arm64"},
		{field: "os.distribution", to: "debian"},
		{field: "os.family", to: "linux"},
		{field: "os.imageID", to: "'https://images.example.com/x.qcow2'"},
		{field: "os.isoUri", to: "'https://images.example.com/x.iso'"},
		{field: "os.version", to: "'13'"},
		{field: "providerRef.name", to: "other"},
		{field: "networks[].macAddress", to: "'02:00:00:00:00:77'", with: newInterface},
		{field: "networks[].model", to: "e1000", with: newInterface},
		{field: "networks[].name", to: "eth9", with: newInterface},
		{field: "networks[].networkName", to: "other", with: newInterface},
	} {
		r.on = on
		rows = append(rows, r)
	}
	for _, field := range []string{"accessMode", "storageClass", "volumeMode"} {
		value := map[string]string{"accessMode": "ReadWriteMany", "storageClass": "fast", "volumeMode": "Block"}[field]
		rows = append(rows, row{field: "disks[]." + field, on: on, to: value})
	}
	return rows
}

// newInterface makes the interface of a row complete.
var newInterface = map[string]string{"networks[0].name": "eth9", "networks[0].networkName": "other", "networkNamespaceName": "null"}

// newMachine creates a machine after the provider has changed, and returns what its hypervisor has.
func (w *world) newMachine(provider string) string {
	name := "later-on-" + provider
	w.once(name, func() {
		w.e.Apply(site, fmt.Sprintf(machine, name, "template: small, providerRef: {name: later-"+provider+"}, networkNamespaceName: network"))
	})
	if provider == "proxmox" {
		text, _ := json.Marshal(w.pve(name))
		return string(text)
	}
	var all strings.Builder
	for _, s := range []subject{{engine.VirtualMachines, site, name, ""}, {engine.Claims, site, name + "-root", ""}} {
		if obj := w.e.Get(s.resource, s.namespace, s.name); obj != nil {
			text, _ := json.Marshal(obj.Object["spec"])
			all.Write(text)
		}
	}
	return all.String()
}

// later checks what the hypervisor has of a machine that is created after the change.
func later(provider, part string) func(*world) string {
	return func(w *world) string { return has(w.newMachine(provider), part) }
}

// admittedMachine checks that a machine of the namespace that a provider excluded has a virtual machine.
func admittedMachine(gate string) func(*world) string {
	return func(w *world) string {
		w.once("machine of "+gate, func() {
			w.e.Apply("gate-"+gate, fmt.Sprintf(machine, "guest", "template: small, providerRef: {name: provider-"+gate+"}, networkNamespaceName: network"))
		})
		if w.e.Get(engine.VirtualMachines, "gate-"+gate, "guest") == nil {
			_, reason, message := w.condition(subject{engine.Machines, "gate-" + gate, "guest", ""}, "Ready")
			return reason + ": " + message
		}
		return ""
	}
}

func classRows() (rows []row) {
	for _, change := range [][2]string{
		{"disks[].accessMode", "ReadWriteMany"}, {"disks[].name", "other"}, {"disks[].size", "30Gi"}, {"disks[].storageClass", "fast"}, {"disks[].volumeMode", "Block"},
		{"resources.cpu.cores", "2"}, {"resources.cpu.sockets", "2"}, {"resources.cpu.threads", "2"}, {"resources.memory.size", "4Gi"},
	} {
		rows = append(rows, row{field: change[0], on: "class", to: change[1]})
	}
	return rows
}

func providerRows() []row {
	rows := []row{
		{field: "type", on: "type kubevirt", to: "proxmox"},
		{field: "default", on: "type kubevirt", to: "false", proof: "apis/machine/plan TestDefaultProvider"},
		{field: "shared", on: "type kubevirt", to: "true", check: func(w *world) string {
			return is(w.field(subjects["type kubevirt"], "status.observedGeneration"), w.field(subjects["type kubevirt"], "metadata.generation"))
		}},
		{field: "defaults.bridge", on: "type kubevirt", to: "br7", check: later("kubevirt", "br7")},
		{field: "defaults.bridge", on: "type proxmox", to: "vmbr7", proof: "tests/e2e/changes TestChanges"},
		{field: "defaults.nodeName", on: "type kubevirt", to: "hypervisor-2", check: later("kubevirt", "hypervisor-2")},
		{field: "defaults.storageClass", on: "type kubevirt", to: "standard", check: later("kubevirt", `"storageClassName":"standard"`)},
		{field: "defaults.storageClass", on: "type proxmox", to: "ceph", proof: "functions/create-vm TestProxmoxClones"},
		{field: "kubevirt.cpuModel", on: "type kubevirt", to: "Cascadelake-Server", check: later("kubevirt", "Cascadelake-Server")},
		{field: "proxmox.cpuType", on: "type proxmox", to: "host", check: later("proxmox", `"cpu":"host`)},
		{field: "proxmox.vmidStart", on: "type proxmox", to: "700000", check: later("proxmox", `"vmid":"70000`)},
		{field: "proxmox.vmidEnd", on: "type proxmox", to: "700003", check: later("proxmox", `"vmid":"70000`)},
		{field: "proxmox.pool", on: "type proxmox", to: "tenants", proof: "functions/create-vm TestProxmoxMachines"},
		{field: "proxmox.linkedClone", on: "type proxmox", to: "true", proof: "functions/create-vm TestProxmoxClones"},
		{field: "proxmox.allowedSnippets", on: "type proxmox", to: "['local:snippets/base.yaml']", proof: "functions/create-vm/hypervisor/proxmox TestSnippetsOfOthers"},
		{field: "endpoint.url", on: "type proxmox", to: "'https://pve2.example.com:8006'", proof: "functions/create-vm TestProxmoxProviderStatus"},
		{field: "endpoint.caBundle", on: "type proxmox", to: "none", proof: "functions/create-vm TestProxmoxProviderStatus"},
		{field: "endpoint.insecureSkipVerify", on: "type proxmox", to: "true", proof: "functions/create-vm TestProxmoxProviderStatus"},
		{field: "endpoint.timeoutSeconds", on: "type proxmox", to: "5", proof: "functions/create-vm TestHealthIsMeasured"},
		{field: "credentialsRef.name", on: "type proxmox", to: "other", proof: "functions/create-vm TestProxmoxCredentials"},
		{field: "credentialsRef.namespace", on: "type proxmox", to: "other", proof: "functions/create-vm TestProxmoxCredentials"},
	}
	for field, value := range map[string]string{"displayName": "blue", "region": "blue"} {
		rows = append(rows, row{field: field, on: "type kubevirt", to: value, check: stored("type kubevirt", field, value)})
	}
	rows = append(rows, row{field: "zones", on: "type kubevirt", to: "[blue]", check: stored("type kubevirt", "zones", "[blue]")})
	for field, to := range map[string][2]string{
		"list": {"list", "[gate-list]"}, "selector.matchLabels": {"labels", "{vitistack.io/gate: labels}"},
		"selector.matchExpressions[].key": {"key", "vitistack.io/gate"}, "selector.matchExpressions[].operator": {"operator", "Exists"},
		"selector.matchExpressions[].values": {"values", "[values]"},
	} {
		rows = append(rows, row{field: "allowedNamespaces." + field, on: "provider by " + to[0], to: to[1], check: admittedMachine(to[0])})
	}
	return rows
}
