package changes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vitistack/stack/tests/stand/engine"
)

// node checks what the API server of a workload cluster has of a node, as its owner sees it.
func node(clusterName, name, part string) func(*world) string {
	return inCluster(clusterName, part, "node", name)
}

// hasSetting checks that the manifests of a ConfigMap of the world are applied to a workload cluster.
func hasSetting(clusterName, name string) func(*world) string {
	return inCluster(clusterName, `"from":"`+name+`"`, "configmap", "settings")
}

// inCluster checks what the API server of a workload cluster has of an object, as its owner sees it.
func inCluster(clusterName, part string, object ...string) func(*world) string {
	return func(w *world) string {
		path := filepath.Join(w.e.Dir, clusterName+".kubeconfig")
		secret := fmt.Sprint(w.field(subject{engine.Secrets, site, clusterName + "-kubeconfig", ""}, "data.kubeconfig"))
		if err := os.WriteFile(path, decode(secret), 0o600); err != nil {
			return err.Error()
		}
		out, err := exec.CommandContext(w.Context(), engine.Local(w.T), append([]string{"kubectl", "--kubeconfig", path, "get", "-o", "json"}, object...)...).CombinedOutput()
		if err != nil {
			return string(out)
		}
		return has(strings.Join(strings.Fields(string(out)), ""), part)
	}
}

// config checks the machine configuration on the disk of a node.
func config(name, part string) func(*world) string {
	return func(w *world) string { return has(w.talosConfig(name), part) }
}

// machineHas checks a field of a Machine of a cluster.
func machineHas(name, path, want string) func(*world) string {
	return func(w *world) string {
		return is(w.field(subject{engine.Machines, site, name, ""}, path), want)
	}
}

func clusterRows() []row {
	const one, ha = "one control plane", "three on Proxmox"
	pool := func(field string) string { return "topology.workers[]." + field }
	rows := []row{
		{field: "paused", on: one, to: "true", proof: "functions/bootstrap-talos TestLastMemberStays"},
		{field: "protected", on: one, to: "true", check: deletionRefused(one)},
		{field: "addons[].configMap", on: one, to: "addon-b", check: hasSetting("single", "b")},
		{field: "addons[].name", on: one, to: "second", proof: "functions/bootstrap-talos TestAddons"},
		{field: "addons[].url", on: one, to: "https://example.com/manifests.yaml", with: map[string]string{"addons[0].configMap": "null"}, proof: "functions/bootstrap-talos TestAddonByURL"},
		{field: "templateRef.name", on: one, to: "changes-standard", proof: "functions/bootstrap-talos TestTemplateRef"},
		{field: "approval.policy", on: one, to: "growth", proof: "functions/bootstrap-talos TestApproval"},
		{field: "upgrade.paused", on: one, to: "true", proof: "functions/bootstrap-talos TestUpgradeStops"},
		{field: "controlPlaneEndpoint.mode", on: ha, to: "node"},
		{field: "controlPlaneEndpoint.port", on: ha, to: "443"},
		{field: "controlPlaneEndpoint.address", on: ha, to: "192.0.2.9"},
		{field: "controlPlaneEndpoint.host", on: ha, to: "api.example.com", with: map[string]string{"controlPlaneEndpoint.mode": "custom"}},
		{field: "controlPlaneEndpoint.host", on: one, to: "api.example.com", with: map[string]string{"controlPlaneEndpoint.mode": "custom"}, proof: "functions/bootstrap-talos TestWrongEndpointIsCorrected"},
		{field: "networking.cni", on: one, to: "none"},
		{field: "networking.dnsDomain", on: one, to: "blue.local"},
		{field: "networking.podCIDR", on: one, to: "10.200.0.0/16"},
		{field: "networking.serviceCIDR", on: one, to: "10.200.0.0/16"},
		{field: "networkNamespaceName", on: one, to: "other"},
		{field: "networkNamespaceName", on: ha, to: "other"}, // which names no network
		{field: "data.provider", on: one, to: "eks"},
		{field: "talos.serviceAccountKey", on: one, to: "RSA"},
		{field: "talos.configChanges", on: one, to: "Staged", proof: "functions/bootstrap-talos TestConfigChanges"},
		{field: "talos.installDisk", on: one, to: "/dev/vdb", check: config("single-cp-0", "/dev/vdb")},
		{field: "talos.rotateAuthorities", on: one, to: "2026-11", proof: "functions/bootstrap-talos TestRotation"},
		{field: "talos.schematic", on: one, to: strings.Repeat("ab", 32), check: config("single-cp-0", strings.Repeat("ab", 32))},
		{field: "talos.version", on: one, to: "1.13.9", check: func(w *world) string { return is(w.field(subjects[one], "status.talosVersion"), "1.13.9") }},
		{field: "topology.version", on: one, to: "'1.34'", check: node("single", "single-a-0", `"kubeletVersion":"v1.34.`)},
		{field: "topology.controlplane.version", on: one, to: "'1.34'", proof: "functions/bootstrap-talos TestUpgrades"},
		{field: pool("version"), on: one, to: "'1.34'", proof: "functions/bootstrap-talos TestUpgrades"},
		{field: pool("upgradeConcurrency"), on: one, to: "2", proof: "functions/bootstrap-talos TestUpgrades"},
		{field: pool("rollout.maxSurge"), on: one, to: "2", proof: "functions/bootstrap-talos TestPoolIsReplaced"},
		{field: pool("rollout.maxUnavailable"), on: one, to: "1", proof: "functions/bootstrap-talos TestPoolIsReplaced"},
		{field: pool("rollout.type"), on: one, to: "InPlace", proof: "functions/bootstrap-talos TestPoolIsResizedInPlace"},
		{field: "topology.controlplane.rollout.type", on: ha, to: "InPlace", proof: "functions/bootstrap-talos TestControlPlaneIsResizedInPlace"},
		{field: "topology.controlplane.replicas", on: ha, to: "5", check: node("ha", "ha-cp-4", `"name":"ha-cp-4"`)},
		{field: "topology.controlplane.template", on: ha, to: "medium", proof: "functions/bootstrap-talos TestControlPlaneIsReplaced"},
		{field: "topology.controlplane.providerRef.name", on: ha, to: "kubevirt", check: machineHas("ha-cp-4", "status.provider", "kubevirt")},
		{field: "topology.controlplane.drainTimeout", on: one, to: "30m", proof: "functions/bootstrap-talos TestDrainTimeout"},
		{field: pool("drainTimeout"), on: one, to: "30m", proof: "functions/bootstrap-talos TestDrainTimeout"},
		{field: pool("replicas"), on: one, to: "2", check: node("single", "single-a-1", `"name":"single-a-1"`)},
		{field: pool("name"), on: one, to: "c", proof: "functions/bootstrap-talos TestPoolsGrowAndShrink"},
		{field: pool("template"), on: one, at: "topology.workers[1].template", to: "medium", proof: "functions/bootstrap-talos TestPoolIsReplaced"},
		{field: pool("providerRef.name"), on: one, at: "topology.workers[1].providerRef.name", to: "proxmox", check: machineHas("single-b-1", "status.provider", "proxmox")},
		{field: "topology.scaledWorkers", on: one, to: "2", check: node("single", "single-b-1", `"name":"single-b-1"`)},
		{field: pool("autoscaling.enabled"), on: one, at: "topology.workers[1].autoscaling.enabled", to: "false", proof: "functions/bootstrap-talos TestAutoscaling"},
		{field: pool("autoscaling.minReplicas"), on: one, at: "topology.workers[1].autoscaling.minReplicas", to: "2", check: node("single", "single-b-1", `"name":"single-b-1"`)},
		{field: pool("autoscaling.maxReplicas"), on: one, at: "topology.workers[1].autoscaling.maxReplicas", to: "3", proof: "functions/bootstrap-talos TestAutoscaling"},
		{field: "topology.controlplane.labels", on: one, to: "{color: blue}", check: node("single", "single-cp-0", `"color":"blue"`)},
		{field: pool("labels"), on: one, to: "{color: green}", check: node("single", "single-a-0", `"color":"green"`)},
		{field: "topology.controlplane.patches", on: one, to: "[patch-a]", check: config("single-cp-0", "vm.patch-a")},
		{field: pool("patches"), on: one, to: "[patch-b]", check: config("single-a-0", "vm.patch-b")},
		{field: "talos.patches.all", on: one, to: "[patch-c]", check: config("single-a-0", "vm.patch-c")},
		{field: "talos.patches.controlPlane", on: one, to: "[patch-d]", check: config("single-cp-0", "vm.patch-d")},
		{field: "talos.patches.workers", on: one, to: "[patch-e]", check: config("single-a-0", "vm.patch-e")},
	}
	for group, name := range map[string]string{"topology.controlplane": "single-cp-0", "topology.workers[]": "single-a-0"} {
		for field, value := range map[string]string{"key": "zone", "value": "blue", "effect": "NoSchedule"} {
			rows = append(rows, row{field: group + ".taints[]." + field, on: one, to: value,
				check: node("single", name, `{"effect":"NoSchedule","key":"zone","value":"blue"}`)})
		}
	}
	for _, group := range []string{"topology.controlplane", "topology.workers[]"} {
		rows = append(rows,
			row{field: group + ".healthCheck.enabled", on: one, to: "true", proof: "functions/bootstrap-talos TestUnhealthyMachineIsReplaced"},
			row{field: group + ".healthCheck.unhealthyTimeout", on: one, to: "1h", proof: "apis/cluster/plan TestSelectUnhealthy"},
			row{field: group + ".healthCheck.maxUnhealthy", on: one, to: "1", proof: "apis/cluster/plan TestSelectUnhealthy"})
	}
	for _, field := range []string{"clusterId", "clusterUid", "datacenter", "environment", "project", "region", "workorder", "workspace", "zone"} {
		rows = append(rows, row{field: "data." + field, on: one, to: "new-" + strings.ToLower(field), check: func(w *world) string {
			return w.shown("single", `"`+field+`":"new-`+strings.ToLower(field)+`"`)
		}})
	}
	return rows
}

// snapshotIn checks that a folder of the volume has a snapshot.
func snapshotIn(folder string) func(*world) string {
	return func(w *world) string {
		files, _ := filepath.Glob(filepath.Join(w.e.Dir, "backups", folder, "*", "*", "*"))
		if len(files) == 0 {
			return "no snapshot in " + folder
		}
		return ""
	}
}

func backupRows() []row {
	rows := []row{
		{field: "clusterName", on: "local", to: "ha"},
		{field: "retention", on: "local", to: "1", check: func(w *world) string {
			if w.field(subjects["local"], "status.observedGeneration") == nil {
				return "no status"
			}
			return is(w.field(subjects["local"], "status.backupCount"), 1)
		}},
		{field: "schedule", on: "local", to: "'@every 1s'", proof: "functions/etcd-backup TestMakePlan"},
		{field: "schedule", on: "once", to: "'@every 1s'", check: func(w *world) string { return is(w.field(subjects["once"], "status.phase"), "Scheduled") }},
		{field: "suspend", on: "local", to: "true", proof: "functions/etcd-backup TestMakePlan"},
		{field: "storageLocation.path", on: "local", to: "second", check: snapshotIn("second")},
		{field: "storageLocation.path", on: "once", to: "second"},
	}
	for field, value := range map[string]string{
		"type": "s3", "bucket": "snapshots", "endpoint": "'https://s3.example.com'", "region": "eu-north-1", "secretRef.name": "s3",
	} {
		rows = append(rows, row{field: "storageLocation." + field, on: "local", to: value, proof: "functions/etcd-backup TestStores"})
	}
	return rows
}
