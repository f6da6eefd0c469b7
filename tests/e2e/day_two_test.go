package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/clock"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// shape is what a cluster should look like.
type shape struct {
	version, controlSize, workerSize string
	controls, workers                int
	maxSurge, maxUnavailable         int
	// rollout is rollout.type of the control plane and the pool, empty for the default.
	rollout string
}

// topology returns spec.topology. Only topology.version names a version of Kubernetes.
func (s shape) topology(hypervisor string) map[string]any {
	ref := map[string]any{"name": hypervisor}
	rollout := map[string]any{"maxSurge": s.maxSurge, "maxUnavailable": s.maxUnavailable}
	controlPlane := map[string]any{"replicas": s.controls, "template": s.controlSize, "providerRef": ref}
	if s.rollout != "" {
		rollout["type"], controlPlane["rollout"] = s.rollout, map[string]any{"type": s.rollout}
	}
	return map[string]any{
		"version":      s.version,
		"controlplane": controlPlane,
		"workers": []any{map[string]any{
			"name": "pool", "replicas": s.workers, "template": s.workerSize, "providerRef": ref,
			"rollout":     rollout,
			"healthCheck": map[string]any{"unhealthyTimeout": "1m"},
		}},
	}
}

// dayTwoStep is a change to a running cluster.
type dayTwoStep struct {
	name   string
	change func(*shape)
	// away is how many workers may be away meanwhile, and more how many machines may exist beyond the larger one of the numbers
	// before and after.
	away, more int
	// kept is whether every Machine stays.
	kept bool
}

var dayTwoSteps = []dayTwoStep{
	{name: "PoolIsReplacedWithSurge", change: func(s *shape) { s.workerSize = "medium" }, more: 1},
	{name: "PoolIsReplacedInPlace", change: func(s *shape) { s.workerSize, s.maxSurge, s.maxUnavailable = "small", 0, 1 }, away: 1},
	{name: "ControlPlaneIsReplaced", change: func(s *shape) { s.controlSize = "medium" }, more: 1},
	{name: "Grows", change: func(s *shape) { s.controls, s.workers = 5, 3 }},
	{name: "Shrinks", change: func(s *shape) { s.controls, s.workers = 3, 2 }},
	// A kubelet restarts in place, one after the other.
	{name: "KubernetesIsUpgraded", change: func(s *shape) { s.version = "1.34" }, away: 1, kept: true},
}

// TestDayTwo changes a running cluster on each hypervisor. It compares the hypervisors, etcd, the addresses and the Nodes with the
// spec after each step, and bounds what is away at all times.
func TestDayTwo(t *testing.T) {
	t.Parallel()
	clocks := clock.New(t, "bootstrap-talos")
	flags := append([]string{"--config", "RESYNC_PERIOD=3s", "--config", "NODE_PROBE_INTERVAL=1s"}, clocks.Flags()...)
	e := engine.Start(t, flags...)
	d := &dayTwo{Engine: e}
	var sites []*site
	for i, hypervisor := range []string{"kubevirt", "proxmox"} {
		first, last := 10+100*i, 100+100*i
		network := strings.Replace(e.StaticNetwork("network", first, last), "vlanId: 100", fmt.Sprintf("vlanId: %d", 100+i), 1)
		e.Apply(hypervisor, network)
		sites = append(sites, &site{dayTwo: d, hypervisor: hypervisor, cluster: "on-" + hypervisor, first: first, last: last, shape: shape{
			version: "1.33", controlSize: "small", workerSize: "small", controls: 3, workers: 2, maxSurge: 1,
		}})
	}
	each := func(name string, begin, end func(*site)) {
		t.Helper()
		if !t.Run(name, func(t *testing.T) {
			d.t = t
			for _, s := range sites {
				begin(s)
			}
			for _, s := range sites {
				end(s)
			}
		}) {
			t.FailNow() // the next step needs this one
		}
	}
	each("Runs", (*site).create, func(s *site) {
		s.awaitShape()
		s.observer = observe(t, s)
	})
	for _, step := range dayTwoSteps {
		each(step.name, func(s *site) { s.begin(step) }, func(s *site) { s.end(step) })
	}
	each("NodeDies", (*site).crashWorker, (*site).awaitUnhealthy)
	clocks.Set("bootstrap-talos", 4*time.Minute) // longer than the minimum age of a machine that the health check replaces
	each("NodeIsReplaced", func(*site) {}, (*site).awaitReplaced)
	clocks.Set("bootstrap-talos", 0)
	each("ProtectedMachine", (*site).protect, (*site).deleteProtectedMachine)
	each("ProtectedCluster", (*site).deleteProtectedCluster, (*site).awaitNothing)
	each("ProtectedNetwork", func(s *site) { s.deleteProtected(engine.NetworkNamespaces, "network") }, func(s *site) {
		feed.Until(s.t, "the network is deleted", func() (bool, string) {
			return s.Get(engine.NetworkNamespaces, s.hypervisor, "network") == nil, ""
		})
	})
}

// dayTwo is what the sites share.
type dayTwo struct {
	*engine.Engine
	// t is the test of the present step.
	t *testing.T
	// crashed are the addresses of the crashed nodes.
	crashed []string
}

// site is a cluster on a hypervisor, in a namespace with the name of the hypervisor.
type site struct {
	*dayTwo
	hypervisor, cluster string
	// first and last are the host numbers of its network.
	first, last int
	shape       shape
	observer    *observer
	// before has the UIDs of the Machines at the begin of a step, and chosen is the Machine that a step is about.
	before []string
	chosen string
	// chosenUID is the UID of a Machine whose node crashes.
	chosenUID string
}

// create creates the cluster.
func (s *site) create() {
	s.t.Helper()
	s.UntilPhase(engine.NetworkNamespaces, s.hypervisor, "network", "Ready")
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster", "metadata": map[string]any{"name": s.cluster},
		"spec": map[string]any{"data": map[string]any{}, "networkNamespaceName": "network", "topology": s.shape.topology(s.hypervisor)},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Apply(s.hypervisor, string(manifest))
}

func (s *site) patch(resource schema.GroupVersionResource, name, merge string) {
	s.t.Helper()
	(&env{s.Engine, s.t}).patch(resource, s.hypervisor, name, merge)
}

// begin makes the change of a step, and bounds what may be away meanwhile.
func (s *site) begin(step dayTwoStep) {
	s.t.Helper()
	was := s.shape
	step.change(&s.shape)
	s.before = s.uids()
	s.observer.allow(limits{
		ready: min(was.workers, s.shape.workers) - step.away, workers: max(was.workers, s.shape.workers) + step.more,
		members: min(was.controls, s.shape.controls), controls: max(was.controls, s.shape.controls) + step.more,
	})
	topology, err := json.Marshal(map[string]any{"spec": map[string]any{"topology": s.shape.topology(s.hypervisor)}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.patch(engine.KubernetesClusters, s.cluster, string(topology))
}

// end waits for a step, and checks that the cluster has stayed within the limits.
func (s *site) end(step dayTwoStep) {
	s.t.Helper()
	s.awaitShape()
	if after := s.uids(); step.kept && !slices.Equal(s.before, after) {
		s.t.Errorf("%s: the Machines were %v, and are %v", s.cluster, s.before, after)
	}
	s.observer.check(s.t)
	s.observer.allow(s.steady())
}

// steady are the limits of a cluster without a change.
func (s *site) steady() limits {
	return limits{ready: s.shape.workers, workers: s.shape.workers, members: s.shape.controls, controls: s.shape.controls}
}

// crashWorker crashes the oldest worker of each site, without a change of any object or hypervisor.
func (s *site) crashWorker() {
	s.t.Helper()
	machines := s.machines("pool")
	slices.SortFunc(machines, func(a, b machine) int { return a.created.Compare(b.created) })
	s.chosen = machines[0].name
	s.chosenUID = string(s.Get(engine.Machines, s.hypervisor, s.chosen).GetUID())
	s.observer.allow(limits{ready: s.shape.workers - 1, workers: s.shape.workers, members: 3, controls: 3})
	s.crashed = append(s.crashed, machines[0].address)
	s.Crash(s.crashed...) // this starts all others
}

// awaitUnhealthy waits until the health check says that it replaces the machine later.
func (s *site) awaitUnhealthy() {
	s.t.Helper()
	feed.Until(s.t, s.cluster+" is unhealthy", func() (bool, string) {
		status, message := condition(s.Get(engine.KubernetesClusters, s.hypervisor, s.cluster), "MachinesHealthy")
		return status == "False" && strings.Contains(message, "a machine is replaced after 1m0s without a Ready node"), message
	})
	s.observer.check(s.t)
	s.observer.allow(limits{ready: s.shape.workers - 1, workers: s.shape.workers + 1, members: 3, controls: 3})
}

// awaitReplaced waits until another machine has replaced the one whose node has crashed.
func (s *site) awaitReplaced() {
	s.t.Helper()
	// The new Machine has the name of the old one if that was gone before.
	feed.Until(s.t, s.chosen+" is deleted", func() (bool, string) {
		status, message := condition(s.Get(engine.KubernetesClusters, s.hypervisor, s.cluster), "MachinesHealthy")
		m := s.Get(engine.Machines, s.hypervisor, s.chosen)
		return m == nil || string(m.GetUID()) != s.chosenUID, status + " " + message
	})
	s.awaitShape()
	s.observer.check(s.t)
}

// protect protects the network, the cluster, and a Machine of it.
func (s *site) protect() {
	s.t.Helper()
	const protected = `{"spec":{"protected":true}}`
	s.chosen = s.machines("pool")[0].name
	s.patch(engine.NetworkNamespaces, "network", protected)
	s.patch(engine.KubernetesClusters, s.cluster, protected)
	s.patch(engine.Machines, s.chosen, protected)
}

// deleteProtectedMachine deletes a protected Machine, which the cluster then replaces.
func (s *site) deleteProtectedMachine() {
	s.t.Helper()
	uids := s.uids()
	s.observer.allow(limits{ready: s.shape.workers - 1, workers: s.shape.workers + 1, members: 3, controls: 3})
	s.deleteProtected(engine.Machines, s.chosen)
	feed.Until(s.t, "another Machine takes its place", func() (bool, string) {
		after := s.uids()
		return len(after) == len(uids) && !slices.Equal(after, uids), strings.Join(after, ", ")
	})
	s.awaitShape()
	s.observer.check(s.t)
}

func (s *site) deleteProtectedCluster() {
	s.t.Helper()
	s.observer.stop()
	s.deleteProtected(engine.KubernetesClusters, s.cluster)
}

// unprotectCommand is the command in the refusal of a deletion.
var unprotectCommand = regexp.MustCompile(`: run (kubectl .*), and delete it then$`)

// deleteProtected deletes a protected object, which is refused, runs the command in the refusal, and deletes it then.
func (s *site) deleteProtected(resource schema.GroupVersionResource, name string) {
	s.t.Helper()
	client := s.Client.Resource(resource).Namespace(s.hypervisor)
	err := client.Delete(s.t.Context(), name, metav1.DeleteOptions{})
	command := unprotectCommand.FindStringSubmatch(fmt.Sprint(err))
	if command == nil {
		s.t.Fatalf("delete protected %s %s: got %v, want a refusal with a command", resource.Resource, name, err)
	}
	if obj := s.Get(resource, s.hypervisor, name); obj.GetDeletionTimestamp() != nil {
		s.t.Errorf("%s %s is being deleted, although that was refused", resource.Resource, name)
	}
	shell(s.t, s.Engine, command[1])
	s.Delete(resource, s.hypervisor, name)
}

// awaitShape waits until the cluster is Ready and has its shape, at the hypervisor, in etcd, and in its own API.
func (s *site) awaitShape() {
	s.t.Helper()
	began := time.Now()
	feed.Until(s.t, s.cluster+" has its shape", func() (bool, string) {
		kc := s.Get(engine.KubernetesClusters, s.hypervisor, s.cluster)
		observed, _, _ := unstructured.NestedInt64(kc.Object, "status", "observedGeneration")
		for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionMachinesCurrent, v1alpha1.ConditionVersionsCurrent} {
			if status, message := condition(kc, name); status != "True" || observed != kc.GetGeneration() {
				return false, fmt.Sprintf("%s: %s of generation %d: %s", name, status, observed, message)
			}
		}
		why := s.difference()
		return why == "", why
	})
	s.t.Logf("%s has its shape after %s", s.cluster, time.Since(began).Round(100*time.Millisecond))
}

// awaitNothing waits until nothing of the cluster is left.
func (s *site) awaitNothing() {
	s.t.Helper()
	kinds := []schema.GroupVersionResource{
		engine.KubernetesClusters, engine.Machines, engine.NetworkConfigurations, engine.IPAllocations, engine.Leases, engine.Secrets,
		engine.ConfigMaps, engine.Claims, engine.VirtualMachines, engine.Instances,
	}
	feed.Until(s.t, "nothing of "+s.cluster+" is left", func() (bool, string) {
		var left []string
		for _, kind := range kinds {
			for _, obj := range s.List(kind, s.hypervisor, "") {
				left = append(left, kind.Resource+" "+obj.GetName())
			}
		}
		left = append(left, s.leftAtBackends()...)
		return len(left) == 0, strings.Join(left, ", ")
	})
}
