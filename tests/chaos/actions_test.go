package chaos

import (
	"fmt"

	"github.com/vitistack/stack/tests/stand/engine"
)

// namespaces are the namespaces of a run. Each has a network of its own from a source of its own.
// Clusters are in the namespaces with the engine's addresses, because their nodes have to be
// reachable.
var (
	namespaces = []string{"chaos-a", "chaos-b", "chaos-c", "chaos-d", "chaos-e"}
	reached    = namespaces[:2]
)

// action plans a step and has a weight. plan returns nil if the action is not possible.
type action struct {
	weight int
	plan   func(*generator) func(*env)
}

// actions are the actions of users, and the faults of the stack.
var actions = []action{
	{6, newMachine}, {2, wrongMachine}, {3, fixMistake}, {3, resize}, {3, power}, {1, restart}, {3, deleteMachine},
	{3, newCluster}, {1, wrongCluster}, {4, scale}, {2, upgrade}, {1, deleteCluster},
	{4, replacePool}, {2, resizeControlPlane}, {2, pauseReplacement}, {1, killNode}, {1, cutNodes}, {2, protect}, {2, unprotect}, {3, deleteProtected}, {1, protectNode},
	{3, editNetwork}, {2, tuneNetwork}, {2, newRival}, {3, wrongEdit}, {3, editConfiguration}, {1, newReservation}, {1, deleteReservation},
	{2, newBackup}, {1, deleteBackup}, {2, newNetwork}, {2, deleteNetwork},
	{4, changeEventFaults}, {6, killFunction}, {1, killSource}, {1, killAPIServer}, {1, killEtcd}, {2, killGateway}, {1, killSimulators},
	{1, restartAll}, {5, failBackend}, {4, failRequests}, {2, changeClock},
}

func newMachine(a *generator) func(*env) {
	if a.count(engine.Machines) >= 14 {
		return nil
	}
	b := a.named(engine.Machines, a.of(namespaces...), "machine", want{phase: "Running"})
	spec := map[string]any{"template": "small"}
	if a.chance(3) {
		spec["providerRef"] = map[string]any{"name": "proxmox"}
	}
	return a.create(b, "Machine", "v1alpha1", spec)
}

// wrongMachine is a user's mistake, which must be reported with a reason, and corrected later.
func wrongMachine(a *generator) func(*env) {
	if a.count(engine.Machines) >= 14 {
		return nil
	}
	mistakes := []struct {
		reason, fix string
		spec        map[string]any
	}{
		{"TemplateNotFound", `{"spec":{"template":"small"}}`, map[string]any{"template": "gigantic"}},
		{"MachineProviderNotFound", `{"spec":{"providerRef":{"name":"proxmox"}}}`, map[string]any{"template": "small", "providerRef": map[string]any{"name": "nowhere"}}},
		{"NetworkNamespaceNotFound", `{"spec":{"networkNamespaceName":"network"}}`, map[string]any{"template": "small", "networkNamespaceName": "nowhere"}},
	}
	m := mistakes[a.random.IntN(len(mistakes))]
	b := a.named(engine.Machines, a.of(namespaces...), "machine", want{reason: m.reason})
	b.fix = m.fix
	return a.create(b, "Machine", "v1alpha1", m.spec)
}

func fixMistake(a *generator) func(*env) {
	for _, resource := range []struct {
		of   *plannedObject
		want want
	}{
		{a.pick(engine.Machines, func(b *plannedObject) bool { return !right(b) }), want{phase: "Running"}},
		{a.pick(engine.KubernetesClusters, func(b *plannedObject) bool { return !right(b) }), want{phase: "Running"}},
		{a.pick(engine.NetworkNamespaces, func(b *plannedObject) bool { return !right(b) }), want{phase: "Ready"}},
	} {
		if b := resource.of; b != nil {
			merge := b.fix
			b.want, b.fix = resource.want, ""
			return a.patch(b, merge)
		}
	}
	return nil
}

func newCluster(a *generator) func(*env) {
	if a.count(engine.KubernetesClusters) >= 3 {
		return nil
	}
	b := a.named(engine.KubernetesClusters, a.of(reached...), "cluster", want{phase: "Running"})
	b.minor, b.controls, b.surge, b.pool = 33, 1+2*a.random.IntN(2), 1, wantedPool{workers: 1 + a.random.IntN(2), size: "medium"}
	if a.chance(3) {
		b.provider = "proxmox"
	}
	return a.create(b, "KubernetesCluster", "v1alpha1", clusterSpec(b, a.next))
}

// wrongCluster requests a version that does not exist.
func wrongCluster(a *generator) func(*env) {
	if a.count(engine.KubernetesClusters) >= 3 {
		return nil
	}
	b := a.named(engine.KubernetesClusters, a.of(reached...), "cluster", want{reason: "KubernetesVersionUnknown"})
	b.minor, b.controls, b.surge, b.pool = 99, 1, 1, wantedPool{workers: 1, size: "medium"}
	do := a.create(b, "KubernetesCluster", "v1alpha1", clusterSpec(b, a.next))
	b.minor = 34
	b.fix = b.topologyPatch()
	return do
}

func clusterSpec(b *plannedObject, number int) map[string]any {
	return map[string]any{
		"data": map[string]any{
			"clusterUid": fmt.Sprintf("00000000-0000-4000-8000-%012d", number), "clusterId": b.name, "provider": "talos", "environment": "dev",
			"datacenter": "trd1", "project": "p", "region": "west", "workorder": "w", "zone": "z", "workspace": "s",
		},
		"topology": b.topology(),
	}
}

// scale changes the number of control planes or workers of a cluster.
func scale(a *generator) func(*env) {
	b := a.pick(engine.KubernetesClusters, isConnected)
	if b == nil {
		return nil
	}
	if a.chance(3) {
		b.controls = 4 - b.controls // from one to three, and back
	} else {
		b.pool.workers = 1 + a.random.IntN(3)
	}
	return a.patch(b, b.topologyPatch())
}

func upgrade(a *generator) func(*env) {
	b := a.pick(engine.KubernetesClusters, func(b *plannedObject) bool { return isConnected(b) && b.minor == 33 && !b.dead })
	if b == nil {
		return nil
	}
	b.minor = 34
	return a.patch(b, b.topologyPatch())
}

// deleteCluster deletes a cluster and its backups.
func deleteCluster(a *generator) func(*env) {
	b := a.pick(engine.KubernetesClusters, nil)
	if b == nil {
		return nil
	}
	all := []*plannedObject{b}
	for _, other := range a.living {
		if other.of == b {
			all = append(all, other)
		}
	}
	return a.remove(all...)
}

func newBackup(a *generator) func(*env) {
	cluster := a.pick(engine.KubernetesClusters, right)
	if cluster == nil || a.count(engine.EtcdBackups) >= 3 {
		return nil
	}
	b := a.named(engine.EtcdBackups, cluster.namespace, "backup", want{phase: "Completed"})
	b.of = cluster
	spec := map[string]any{"clusterName": cluster.name, "storageLocation": map[string]any{"type": "local"}}
	if a.chance(2) {
		spec["schedule"], b.want.phase = "@hourly", "Scheduled"
	}
	return a.create(b, "EtcdBackup", "v1alpha1", spec)
}

func deleteBackup(a *generator) func(*env) { return deleteOne(a, a.pick(engine.EtcdBackups, nil)) }

// newNetwork creates a network without users.
func newNetwork(a *generator) func(*env) {
	if a.count(engine.NetworkNamespaces) >= 4 {
		return nil
	}
	b := a.named(engine.NetworkNamespaces, "chaos-spare", "network", want{phase: "Ready"})
	spec := networkSpec("", "")
	spec["networkProvisioning"] = sourced(a.of("nam", "netbox", "tour-ipam"))
	return a.create(b, "NetworkNamespace", "v1alpha2", spec)
}

func deleteNetwork(a *generator) func(*env) {
	return deleteOne(a, a.pick(engine.NetworkNamespaces, nil))
}

func resize(a *generator) func(*env) {
	b := a.pick(engine.Machines, right)
	if b == nil {
		return nil
	}
	return a.patch(b, fmt.Sprintf(`{"spec":{"resources":{"cpu":{"cores":%d}}}}`, 1+a.random.IntN(4)))
}

func power(a *generator) func(*env) {
	b := a.pick(engine.Machines, right)
	if b == nil {
		return nil
	}
	b.want.phase = map[string]string{"Running": "Stopped", "Stopped": "Running"}[b.want.phase]
	return a.patch(b, fmt.Sprintf(`{"spec":{"powerState":%q}}`, b.want.phase))
}

func restart(a *generator) func(*env) {
	b := a.pick(engine.Machines, right)
	if b == nil {
		return nil
	}
	a.next++
	return a.patch(b, fmt.Sprintf(`{"spec":{"restartToken":"%d"}}`, a.next))
}

func deleteMachine(a *generator) func(*env) { return deleteOne(a, a.pick(engine.Machines, nil)) }

func deleteOne(a *generator, b *plannedObject) func(*env) {
	if b == nil {
		return nil
	}
	return a.remove(b)
}
