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
	return func(w *world) string {
		path := filepath.Join(w.e.Dir, clusterName+".kubeconfig")
		secret := fmt.Sprint(w.field(subject{engine.Secrets, site, clusterName + "-kubeconfig", ""}, "data.kubeconfig"))
		if err := os.WriteFile(path, decode(secret), 0o600); err != nil {
			return err.Error()
		}
		out, err := exec.CommandContext(w.Context(), engine.Local(w.T), "kubectl", "--kubeconfig", path, "get", "node", name, "-o", "json").CombinedOutput()
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
	const (
		one, ha  = "one control plane", "three on Proxmox"
		reports  = "shown by the REST API and the status page"
		replaced = "the machines are replaced, one after the other; MachinesCurrent says how many are left"
		fixed    = "cannot be changed"
	)
	pool := func(field string) string { return "topology.workers[]." + field }
	rows := []row{
		{field: "paused", on: one, to: "true", outcome: applied, effect: "nothing changes until it is false; deleted machines still leave", proof: "functions/bootstrap-talos TestLastMemberStays"},
		{field: "protected", on: one, to: "true", outcome: applied, effect: "a deletion is refused", check: deletionRefused(one)},
		{field: "approval.policy", on: one, to: "growth", outcome: applied, effect: "the next growth waits for an approval; what exists stays", proof: "functions/bootstrap-talos TestApproval"},
		{field: "upgrade.paused", on: one, to: "true", outcome: applied, effect: "no further node begins its upgrade, and no further machine is replaced", proof: "functions/bootstrap-talos TestUpgradeStops"},
		{field: "controlPlaneEndpoint.mode", on: ha, to: "node", outcome: initial, effect: "spec.controlPlaneEndpoint " + fixed},
		{field: "controlPlaneEndpoint.port", on: ha, to: "443", outcome: initial, effect: "spec.controlPlaneEndpoint " + fixed},
		{field: "controlPlaneEndpoint.address", on: ha, to: "192.0.2.9", outcome: initial, effect: "spec.controlPlaneEndpoint " + fixed},
		{field: "controlPlaneEndpoint.host", on: ha, to: "api.example.com", with: map[string]string{"controlPlaneEndpoint.mode": "custom"}, outcome: initial, effect: "spec.controlPlaneEndpoint " + fixed},
		{field: "networking.dnsDomain", on: one, to: "blue.local", outcome: initial, effect: "spec.networking " + fixed},
		{field: "networking.podCIDR", on: one, to: "10.200.0.0/16", outcome: initial, effect: "spec.networking " + fixed},
		{field: "networking.serviceCIDR", on: one, to: "10.200.0.0/16", outcome: initial, effect: "spec.networking " + fixed},
		{field: "networkNamespaceName", on: one, to: "other", outcome: initial, effect: "networkNamespaceName " + fixed},
		{field: "data.provider", on: one, to: "eks", outcome: refused, effect: "write talos, or leave provider out"},
		{field: "talos.serviceAccountKey", on: one, to: "RSA", outcome: initial, effect: "talos.serviceAccountKey (absent: ECDSA) " + fixed},
		{field: "talos.configChanges", on: one, to: "Staged", outcome: applied, effect: "the next change of a configuration that needs a reboot follows it", proof: "functions/bootstrap-talos TestConfigChanges"},
		{field: "talos.installDisk", on: one, to: "/dev/vdb", outcome: applied, effect: "for nodes that are installed afterwards; an installed node stays on its disk, and its configuration follows", check: config("single-cp-0", "/dev/vdb")},
		{field: "talos.rotateAuthorities", on: one, to: "2026-11", outcome: applied, effect: "the authorities are rotated once for each new value", proof: "functions/bootstrap-talos TestRotation"},
		{field: "talos.schematic", on: one, to: strings.Repeat("ab", 32), outcome: applied, effect: "for nodes that are created or upgraded afterwards; the configuration of the others follows", check: config("single-cp-0", strings.Repeat("ab", 32))},
		{field: "talos.version", on: one, to: "1.13.9", outcome: applied, effect: "the nodes are upgraded, one after the other; VersionsCurrent says how far", check: func(w *world) string { return is(w.field(subjects[one], "status.talosVersion"), "1.13.9") }},
		{field: "topology.version", on: one, to: "'1.34'", outcome: applied, effect: "the nodes without a version of their own are upgraded; VersionsCurrent says how far", check: node("single", "single-a-0", `"kubeletVersion":"v1.34.`)},
		{field: "topology.controlplane.version", on: one, to: "'1.34'", outcome: applied, effect: "the control plane, and the pools without a version, are upgraded", proof: "functions/bootstrap-talos TestUpgrades"},
		{field: pool("version"), on: one, to: "'1.34'", outcome: applied, effect: "the pool is upgraded, not beyond its control plane", proof: "functions/bootstrap-talos TestUpgrades"},
		{field: pool("upgradeConcurrency"), on: one, to: "2", outcome: applied, effect: "this many workers are upgraded at the same time", proof: "functions/bootstrap-talos TestUpgrades"},
		{field: pool("rollout.maxSurge"), on: one, to: "2", outcome: applied, effect: "the pool has at most this many machines above its replicas while machines are replaced", proof: "functions/bootstrap-talos TestPoolIsReplaced"},
		{field: pool("rollout.maxUnavailable"), on: one, to: "1", outcome: applied, effect: "the pool misses at most this many machines while machines are replaced", proof: "functions/bootstrap-talos TestPoolIsReplaced"},
		{field: "topology.controlplane.replicas", on: ha, to: "5", outcome: applied, effect: "control planes are added, or leave etcd and are removed, one after the other", check: node("ha", "ha-cp-4", `"name":"ha-cp-4"`)},
		{field: "topology.controlplane.template", on: ha, to: "medium", outcome: applied, effect: replaced, proof: "functions/bootstrap-talos TestControlPlaneIsReplaced"},
		{field: "topology.controlplane.providerRef.name", on: ha, to: "kubevirt", outcome: applied, effect: replaced, check: machineHas("ha-cp-4", "status.provider", "kubevirt")},
		{field: "topology.controlplane.drainTimeout", on: one, to: "30m", outcome: applied, effect: "drains end after it, also one that is under way", proof: "functions/bootstrap-talos TestDrainTimeout"},
		{field: pool("drainTimeout"), on: one, to: "30m", outcome: applied, effect: "drains end after it, also one that is under way", proof: "functions/bootstrap-talos TestDrainTimeout"},
		{field: pool("replicas"), on: one, to: "2", outcome: applied, effect: "workers are added, or drained and removed", check: node("single", "single-a-1", `"name":"single-a-1"`)},
		{field: pool("name"), on: one, to: "c", outcome: applied, effect: "another pool: its workers are created, and those of the former one are drained and removed", proof: "functions/bootstrap-talos TestPoolsGrowAndShrink"},
		{field: pool("template"), on: one, at: "topology.workers[1].template", to: "medium", outcome: applied, effect: replaced, proof: "functions/bootstrap-talos TestPoolIsReplaced"},
		{field: pool("providerRef.name"), on: one, at: "topology.workers[1].providerRef.name", to: "proxmox", outcome: applied, effect: replaced, check: machineHas("single-b-1", "status.provider", "proxmox")},
		{field: "topology.scaledWorkers", on: one, to: "2", outcome: applied, effect: "the pools with autoscaling get this many workers together", check: node("single", "single-b-1", `"name":"single-b-1"`)},
		{field: pool("autoscaling.enabled"), on: one, at: "topology.workers[1].autoscaling.enabled", to: "false", outcome: applied, effect: "scaledWorkers counts for the pool, or replicas does", proof: "functions/bootstrap-talos TestAutoscaling"},
		{field: pool("autoscaling.minReplicas"), on: one, at: "topology.workers[1].autoscaling.minReplicas", to: "2", outcome: applied, effect: "the pool has at least this many workers", check: node("single", "single-b-1", `"name":"single-b-1"`)},
		{field: pool("autoscaling.maxReplicas"), on: one, at: "topology.workers[1].autoscaling.maxReplicas", to: "3", outcome: applied, effect: "an autoscaler may set scaledWorkers up to the sum", proof: "functions/bootstrap-talos TestAutoscaling"},
		{field: "topology.controlplane.labels", on: one, to: "{color: blue}", outcome: applied, effect: "the nodes have the labels; others that the stack had set are removed", check: node("single", "single-cp-0", `"color":"blue"`)},
		{field: pool("labels"), on: one, to: "{color: green}", outcome: applied, effect: "the nodes have the labels; others that the stack had set are removed", check: node("single", "single-a-0", `"color":"green"`)},
		{field: "topology.controlplane.patches", on: one, to: "[patch-a]", outcome: applied, effect: "the configuration of the nodes follows; ConfigCurrent names a node that needs a reboot for it", check: config("single-cp-0", "vm.patch-a")},
		{field: pool("patches"), on: one, to: "[patch-b]", outcome: applied, effect: "the configuration of the nodes follows; ConfigCurrent names a node that needs a reboot for it", check: config("single-a-0", "vm.patch-b")},
		{field: "talos.patches.all", on: one, to: "[patch-c]", outcome: applied, effect: "the configuration of the nodes follows; ConfigCurrent names a node that needs a reboot for it", check: config("single-a-0", "vm.patch-c")},
		{field: "talos.patches.controlPlane", on: one, to: "[patch-d]", outcome: applied, effect: "the configuration of the nodes follows; ConfigCurrent names a node that needs a reboot for it", check: config("single-cp-0", "vm.patch-d")},
		{field: "talos.patches.workers", on: one, to: "[patch-e]", outcome: applied, effect: "the configuration of the nodes follows; ConfigCurrent names a node that needs a reboot for it", check: config("single-a-0", "vm.patch-e")},
	}
	for group, name := range map[string]string{"topology.controlplane": "single-cp-0", "topology.workers[]": "single-a-0"} {
		for field, value := range map[string]string{"key": "zone", "value": "blue", "effect": "NoSchedule"} {
			rows = append(rows, row{field: group + ".taints[]." + field, on: one, to: value, outcome: applied, effect: "the nodes have the taint; others that the stack had set are removed",
				check: node("single", name, `{"effect":"NoSchedule","key":"zone","value":"blue"}`)})
		}
	}
	for _, group := range []string{"topology.controlplane", "topology.workers[]"} {
		rows = append(rows,
			row{field: group + ".healthCheck.enabled", on: one, to: "true", outcome: applied, effect: "machines are replaced, or not, whose nodes are unhealthy; MachinesHealthy says which", proof: "functions/bootstrap-talos TestUnhealthyMachineIsReplaced"},
			row{field: group + ".healthCheck.unhealthyTimeout", on: one, to: "1h", outcome: applied, effect: "a machine is replaced after this time", proof: "apis/cluster/plan TestSelectUnhealthy"},
			row{field: group + ".healthCheck.maxUnhealthy", on: one, to: "1", outcome: applied, effect: "no machine is replaced while more are unhealthy", proof: "apis/cluster/plan TestSelectUnhealthy"})
	}
	for _, field := range []string{"clusterId", "clusterUid", "datacenter", "environment", "project", "region", "workorder", "workspace", "zone"} {
		rows = append(rows, row{field: "data." + field, on: one, to: "new-" + strings.ToLower(field), outcome: applied, effect: reports, check: func(w *world) string {
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
		{field: "clusterName", on: "local", to: "ha", outcome: refused, effect: "clusterName cannot be changed"},
		{field: "retention", on: "local", to: "1", outcome: applied, effect: "the next snapshot deletes what is beyond it", check: func(w *world) string {
			if w.field(subjects["local"], "status.observedGeneration") == nil {
				return "no status"
			}
			return is(w.field(subjects["local"], "status.backupCount"), 1)
		}},
		{field: "schedule", on: "local", to: "'@every 1s'", outcome: applied, effect: "status.nextBackupTime follows", proof: "functions/etcd-backup TestMakePlan"},
		{field: "schedule", on: "once", to: "'@every 1s'", outcome: applied, effect: "a finished EtcdBackup takes further snapshots", check: func(w *world) string { return is(w.field(subjects["once"], "status.phase"), "Scheduled") }},
		{field: "suspend", on: "local", to: "true", outcome: applied, effect: "no snapshot is taken", proof: "functions/etcd-backup TestMakePlan"},
		{field: "storageLocation.path", on: "local", to: "second", outcome: applied, effect: "the next snapshot is there; earlier ones stay, and are not deleted any more", check: snapshotIn("second")},
		{field: "storageLocation.path", on: "once", to: "second", outcome: refused, effect: "storageLocation has no effect, because the only snapshot"},
	}
	for field, value := range map[string]string{
		"type": "s3", "bucket": "snapshots", "endpoint": "'https://s3.example.com'", "region": "eu-north-1", "secretRef.name": "s3",
	} {
		rows = append(rows, row{field: "storageLocation." + field, on: "local", to: value, outcome: applied, effect: "the next snapshot is there; earlier ones stay, and are not deleted any more", proof: "functions/etcd-backup TestStores"})
	}
	return rows
}
