package bench

import (
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/sim/loopback"
	"github.com/vitistack/stack/tests/stand/engine"
)

var load = flag.Float64("load", 0.02, "size of BenchmarkLoad, where 1 is a data centre of 1000 networks, 10000 addresses, 2000 machines and 200 clusters")

var loadFor = flag.Duration("load-for", 25*time.Minute, "maximum time of BenchmarkLoad, which omits the parts that do not fit")

// A full load. Each cluster has nodesEach of the machines, and each machine one of the addresses. The
// remaining objects are created individually.
const (
	loadNetworks, loadAddresses, loadMachines, loadClusters = 1000, 10000, 2000, 200
	nodesEach                                               = 2
	// perRange is the number of nodes in one range of loopback addresses.
	perRange = 240
	// perHost is the number of machines per hypervisor.
	perHost = 50
)

// site is the data centre of a load.
type site struct {
	b                                       *testing.B
	e                                       *engine.Engine
	networks, addresses, machines, clusters int
	nodeNetworks                            int
}

// BenchmarkLoad fills a data centre in steps of a quarter, a quarter and a half, and reports the cost
// of each object at that size. growth-exponent is the exponent of the time over the number of objects
// between the first quarter and the whole: 1 is linear. It fails unless every address is unique, and
// every machine has one virtual machine.
func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		s := &site{b: b, e: engine.Start(b, "--audit", "--idle", "10m")}
		s.e.CreateNamespace("nodes")
		s.e.UntilPhase(engine.MachineProviders, "", "kubevirt", "Ready")
		s.addHosts(int(loadMachines * *load / perHost))
		total, began := map[float64]time.Duration{}, time.Now()
		var filled float64
		for _, part := range []float64{0.25, 0.5, 1} {
			if filled > 0 && time.Since(began).Seconds()*part/filled > loadFor.Seconds() {
				progress("%g of the load took %s, so %g is omitted", filled, time.Since(began), part)
				break
			}
			s.fillTo(part)
			total[part], filled = time.Since(began), part
		}
		s.consistent()
		b.ReportMetric(total[filled].Seconds(), "s-whole")
		b.ReportMetric(filled, "filled")
		b.ReportMetric(*load, "size")
		b.ReportMetric(math.Log(float64(total[filled])/float64(total[0.25]))/math.Log(filled/0.25), "growth-exponent")
		for name, u := range usages(b, s.e) {
			b.ReportMetric(float64(u.rss)/1e6, name+"-MB")
			b.ReportMetric(u.cpu.Seconds(), name+"-cpu-s")
		}
	}
	b.ReportMetric(0, "ns/op")
}

// addHosts creates n more hypervisors like the first one.
func (s *site) addHosts(n int) {
	s.b.Helper()
	nodes := s.e.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	first, err := nodes.Get(s.b.Context(), "hypervisor-1", metav1.GetOptions{})
	if err != nil {
		s.b.Fatal(err)
	}
	for i := range n {
		node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "status": first.Object["status"]}}
		node.SetName(fmt.Sprintf("hypervisor-%d", 10+i))
		node.SetLabels(first.GetLabels())
		if _, err := nodes.Create(s.b.Context(), node, metav1.CreateOptions{}); err != nil {
			s.b.Fatal(err)
		}
	}
}

// fillTo creates the missing objects up to a part of the load, one kind after the other.
func (s *site) fillTo(part float64) {
	s.b.Helper()
	want := func(whole int) int { return max(1, int(math.Ceil(float64(whole)**load*part))) }
	clusters, machines := want(loadClusters), want(loadMachines)
	single := max(1, machines-nodesEach*clusters)
	networks, addresses := want(loadNetworks), max(1, want(loadAddresses)-machines)
	s.measure(part, "network", networks-s.networks, func(n int) { s.addNetworks(n) })
	s.measure(part, "address", addresses-s.addresses, func(n int) { s.addAddresses(n) })
	s.measure(part, "machine", single-s.machines, func(n int) { s.addMachines(n) })
	s.measure(part, "cluster", clusters-s.clusters, func(n int) { s.addClusters(n) })
}

// measure reports the cost of each of n more objects.
func (s *site) measure(part float64, what string, n int, add func(n int)) {
	s.b.Helper()
	if n <= 0 {
		return
	}
	began, before := time.Now(), usages(s.b, s.e)
	add(n)
	took := time.Since(began)
	requests := tally{}
	requests.add(s.e, began)
	var cpu time.Duration
	for name, u := range usages(s.b, s.e) {
		cpu += u.cpu - before[name].cpu
	}
	unit := fmt.Sprintf("%s@%g", what, part)
	s.b.ReportMetric(float64(n)/took.Seconds(), fmt.Sprintf("%s/s@%g", what, part))
	s.b.ReportMetric(float64(requests.total())/float64(n), "requests/"+unit)
	s.b.ReportMetric(milliseconds(cpu)/float64(n), "cpu-ms/"+unit)
	progress("%s: %d more in %s: %.1f a second, %.1f requests each", what, n, took.Round(time.Second/10), float64(n)/took.Seconds(), float64(requests.total())/float64(n))
	explain(s.b, s.e, began, before, n)
}

// space returns the namespace of a network.
func space(n int) string { return fmt.Sprintf("space-%d", n) }

func (s *site) addNetworks(n int) {
	done := watchFor(s.b, s.e, "networks", n+s.networks+s.nodeNetworks, engine.NetworkNamespaces, "", "status.provisioningPhase=Ready")
	create(s.b, n, func(i int) error {
		s.e.CreateNamespace(space(s.networks + i))
		return s.apply(space(s.networks+i), engine.NetworkNamespaces, network(s.networks+i))
	})
	s.networks += n
	done()
}

func (s *site) addAddresses(n int) {
	done := watchFor(s.b, s.e, "addresses", n+s.addresses+s.machines+s.clusters*nodesEach, engine.NetworkConfigurations, "", "status.phase=Ready")
	create(s.b, n, func(i int) error {
		_, err := s.e.Client.Resource(engine.NetworkConfigurations).Namespace(space((s.addresses+i)%s.networks)).
			Create(s.b.Context(), configuration(s.addresses+i), metav1.CreateOptions{})
		return err
	})
	s.addresses += n
	done()
}

func (s *site) addMachines(n int) {
	done := watchFor(s.b, s.e, "machines", n+s.machines+s.clusters*nodesEach, engine.Machines, "", "status.phase=Running")
	create(s.b, n, func(i int) error {
		name := s.machines + i
		return s.apply(space(name%s.networks), engine.Machines, fmt.Sprintf(
			"apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: vm-%d}\nspec: {template: small, providerRef: {name: kubevirt}}\n", name))
	})
	s.machines += n
	done()
}

func (s *site) addClusters(n int) {
	for s.nodeNetworks*perRange < (s.clusters+n)*nodesEach {
		s.addNodeNetwork()
	}
	done := watchFor(s.b, s.e, "clusters", n+s.clusters, engine.KubernetesClusters, "", "status.phase=Running")
	create(s.b, n, func(i int) error {
		at := s.clusters + i
		doc := fmt.Sprintf(manyClusters, at) + fmt.Sprintf("  networkNamespaceName: nodes-%d\n", at*nodesEach/perRange)
		return s.apply("nodes", engine.KubernetesClusters, doc)
	})
	s.clusters += n
	done()
}

// addNodeNetwork creates a network with addresses of this machine, on which simulated nodes can
// listen.
func (s *site) addNodeNetwork() {
	claimed, err := loopback.Claim()
	if err != nil {
		s.b.Fatal(err)
	}
	s.b.Cleanup(func() { _ = claimed.Close() })
	base := strings.TrimSuffix(claimed.Prefix().Addr().String(), ".0")
	name := fmt.Sprintf("nodes-%d", s.nodeNetworks)
	doc := strings.ReplaceAll(s.e.StaticNetwork(name, 10, 10+perRange-1), strings.TrimSuffix(s.e.Network().Addr().String(), ".0"), base)
	s.e.Apply("nodes", doc)
	s.e.UntilPhase(engine.NetworkNamespaces, "nodes", name, "Ready")
	s.nodeNetworks++
}

func (s *site) apply(namespace string, kind resource, doc string) error {
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
		return err
	}
	_, err := s.e.Client.Resource(kind).Namespace(namespace).Create(s.b.Context(), obj, metav1.CreateOptions{})
	return err
}

// consistent fails unless everything exists exactly once.
func (s *site) consistent() {
	s.b.Helper()
	nodes := s.clusters * nodesEach
	distinct(s.b, s.e, "", s.addresses+s.machines+nodes)
	vms := map[string]bool{}
	for _, vm := range s.e.List(engine.VirtualMachines, "", "") {
		vms[vm.GetAnnotations()["vitistack.io/uid"]] = true
	}
	if n := len(s.e.List(engine.VirtualMachines, "", "")); n != s.machines+nodes || len(vms) != n {
		s.b.Fatalf("%d virtual machines for %d machines, %d of different owners", n, s.machines+nodes, len(vms))
	}
}
