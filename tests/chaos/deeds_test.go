package chaos

import (
	"fmt"
	"strings"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
)

// namespaces are where the story happens; each has a network of its own.
var namespaces = []string{"chaos-a", "chaos-b", "chaos-c", "chaos-d"}

// deed is something that happens with a weight, if it can.
type deed struct {
	weight int
	happen func(*world)
}

// deeds are what users do, and what befalls the parts of the stack.
var deeds = []deed{
	{6, newMachine}, {3, newCluster}, {4, scale}, {2, resize}, {3, power}, {3, deleteMachine}, {1, deleteCluster},
	{4, changeWeather}, {6, killFunction}, {1, killSource}, {1, killAPIServer}, {1, killEtcd}, {2, killGateway}, {1, restartAll}, {4, troubleBackend},
}

// act does one thing at random.
func (w *world) act() {
	total := 0
	for _, d := range deeds {
		total += d.weight
	}
	at := w.random.IntN(total)
	for _, d := range deeds {
		if at -= d.weight; at < 0 {
			d.happen(w)
			return
		}
	}
}

// newNetwork gives a namespace the i-th quarter of the engine's addresses.
func (w *world) newNetwork(namespace string, i int) {
	base := strings.TrimSuffix(w.e.Network().Addr().String(), ".0")
	first := i * 64
	w.create(subject{engine.NetworkNamespaces, namespace, "network"}, "Ready", fmt.Sprintf(`
apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
spec:
  datacenterIdentifier: no-west-az1
  supervisorIdentifier: test
  networkProvisioning:
    provider: manual
    manual: {ipv4CIDR: %[1]s.%[2]d/26, ipv4Gateway: %[1]s.%[3]d, vlanId: %[5]d}
  ipAllocation:
    type: static
    static: {ipv4RangeStart: %[1]s.%[4]d, ipv4RangeEnd: %[1]s.%[6]d}
`, base, first, first+1, first+2, 100+i, first+62))
}

func newMachine(w *world) {
	if w.count(engine.Machines) >= 12 {
		return
	}
	s := subject{engine.Machines, w.namespace(), w.name("machine")}
	w.create(s, "Running", "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nspec: {template: small}\n")
}

func newCluster(w *world) {
	if w.count(engine.KubernetesClusters) >= 3 {
		return
	}
	s := subject{engine.KubernetesClusters, w.namespace(), w.name("cluster")}
	w.create(s, "Running", fmt.Sprintf(`
apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
spec:
  data: {clusterUid: %q, clusterId: %s, provider: talos, environment: dev, datacenter: trd1, project: p, region: west, workorder: w, zone: z, workspace: s}
  topology:
    version: "1.33"
    controlplane: {replicas: %d, version: "1.33"}
    workers: [{name: pool, replicas: %d, version: "1.33"}]
`, fmt.Sprintf("00000000-0000-4000-8000-%012d", w.next), s.name, 1+2*w.random.IntN(2), 1+w.random.IntN(2)))
}

func scale(w *world) {
	if s, ok := w.pick(engine.KubernetesClusters); ok {
		w.patch(s, "Running", fmt.Sprintf(`{"spec":{"topology":{"workers":[{"name":"pool","replicas":%d,"version":"1.33"}]}}}`, 1+w.random.IntN(3)))
	}
}

func resize(w *world) {
	if s, ok := w.pick(engine.Machines); ok {
		w.patch(s, w.living[s], fmt.Sprintf(`{"spec":{"resources":{"cpu":{"cores":%d}}}}`, 1+w.random.IntN(4)))
	}
}

func power(w *world) {
	s, ok := w.pick(engine.Machines)
	if !ok {
		return
	}
	if w.living[s] == "Running" {
		w.patch(s, "Stopped", `{"spec":{"powerState":"stopped"}}`)
		return
	}
	w.patch(s, "Running", `{"spec":{"powerState":"running"}}`)
}

func deleteMachine(w *world) {
	if s, ok := w.pick(engine.Machines); ok {
		w.remove(s)
	}
}

func deleteCluster(w *world) {
	if s, ok := w.pick(engine.KubernetesClusters); ok {
		w.remove(s)
	}
}

func (w *world) namespace() string { return namespaces[w.random.IntN(len(namespaces))] }

func changeWeather(w *world) {
	all := []Weather{
		{}, {Drop: 0.2}, {Duplicate: 1}, {Delay: 2 * time.Second}, {Drop: 0.3, Duplicate: 0.5, Delay: 5 * time.Second}, {Drop: 1},
	}
	weather := all[w.random.IntN(len(all))]
	w.tell("the weather of events: %+v", weather)
	w.n.SetWeather(weather)
}

func killFunction(w *world) {
	w.kill(functions[w.random.IntN(len(functions))])
}

func killSource(w *world)    { w.kill("apiserversource") }
func killAPIServer(w *world) { w.kill("kube-apiserver") }
func killEtcd(w *world)      { w.kill("etcd") }
func killGateway(w *world)   { w.kill("gateway") }

func (w *world) kill(name string) {
	w.tell("kill -9 %s", name)
	_ = w.e.KillProcess(name)
}

// restartAll kills everything at once, and starts it again on what it has kept.
func restartAll(w *world) {
	w.tell("kill -9 everything, and start it again")
	w.e.Kill()
	w.e.Run()
	w.n.SetBroker(w.e.Ingress())
}

// troubleBackend makes a simulator slow, failing, or done but answering with an
// error.
func troubleBackend(w *world) {
	rules := map[string][]string{
		"talos": {
			`[]`, `[{"latency":"300ms","rate":0.5}]`, `[{"operation":"MachineService/*","error":"Unavailable","rate":0.1}]`,
			`[{"operation":"MachineService/*","error":"Unavailable","after":true,"rate":0.1}]`,
		},
		"kubevirt": {`[]`, `[{"latency":"500ms","rate":0.5}]`},
	}
	name := []string{"talos", "kubevirt"}[w.random.IntN(2)]
	rule := rules[name][w.random.IntN(len(rules[name]))]
	w.tell("%s misbehaves: %s", name, rule)
	w.e.SetFaults(name, rule)
}
