package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

var stock = flag.Int("stock", 200, "number of Machines, in clusters of ten, that exist in BenchmarkStock")

const (
	nodesOfStock = 10
	// stockVLAN is the VLAN of the first cluster's network. Each copy has one of the others.
	stockVLAN, vlans = 100, 4094
)

// stockCluster is the first cluster.
const stockCluster = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: stock}
spec:
  data: {clusterUid: stock, clusterId: stock, provider: talos, environment: dev, datacenter: trd1, project: stock, region: west, workorder: none, zone: a, workspace: stock}
  topology:
    version: "1.33"
    controlplane: {replicas: 3}
    workers: [{name: pool, replicas: 7}]
`

// stockNamespace returns the namespace of a cluster. All have names of the same length, so that a copy of an object
// in Protobuf has the same lengths.
func stockNamespace(i int) string { return fmt.Sprintf("stock-%05d", i) }

// stockSite is an API server with finished clusters.
type stockSite struct {
	b        *testing.B
	e        *engine.Engine
	clusters int
	// first has the objects of the first cluster, as etcd has them.
	first []entry
}

// BenchmarkStock starts the stack on an API server that has thousands of finished clusters, and measures what they cost
// while nothing happens to them, and what one more object costs. All clusters but the first are copies of it in etcd, each
// with its own namespace, UIDs and VLAN. Their nodes are those of the first cluster, so that their health can be
// checked. The virtual machines of the copies are objects that KubeVirt leaves alone.
func BenchmarkStock(b *testing.B) {
	b.Setenv("VITI_KUBEVIRT_NAMESPACE", stockNamespace(0))
	for b.Loop() {
		s := &stockSite{b: b, e: engine.Start(b, "--audit", "--idle", "10m", "--ping-every", "24h")}
		s.createFirst()
		s.copyFirst(max(2, *stock/nodesOfStock))
		s.restart()
		s.measure("round", s.e.RequestRound)
		s.measure("machine", func() { s.addMachine("vm-1") })
		s.measure("cluster", s.addCluster)
		s.measure("deletion", s.deleteCluster)
		s.measure("cold-machine", func() { toZero(b, s.e); s.addMachine("vm-2") })
		s.measure("storm", s.changeMachines)
		for name, u := range usages(b, s.e) {
			b.ReportMetric(float64(u.rss)/1e6, name+"-MB")
		}
		b.ReportMetric(float64(s.clusters*nodesOfStock), "machines")
		b.ReportMetric(float64(s.clusters*len(s.first)), "objects")
	}
	b.ReportMetric(0, "ns/op")
}

// createFirst creates the first cluster, and reads its objects when no function reconciles them any more.
func (s *stockSite) createFirst() {
	s.b.Helper()
	namespace := stockNamespace(0)
	s.e.Apply(namespace, s.e.StaticNetwork("network", 10, 250))
	s.e.UntilPhase(engine.NetworkNamespaces, namespace, "network", "Ready")
	s.e.Apply(namespace, stockCluster)
	s.e.UntilPhase(engine.KubernetesClusters, namespace, "stock", "Running")
	awaitQuiet(s.b, s.e, 3*time.Second)
	for _, kv := range openStore(s.e).list(s.b, "/registry") {
		if key := string(kv.Key); strings.Contains(key, "/"+namespace+"/") && !strings.HasPrefix(key, "/registry/events/") {
			s.first = append(s.first, kv)
		}
	}
}

// uids are the UIDs of objects.
var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// copyFirst copies the first cluster until there are as many clusters.
func (s *stockSite) copyFirst(clusters int) {
	s.b.Helper()
	s.e.StopSources()
	began, etcd := time.Now(), openStore(s.e)
	create(s.b, clusters-1, func(i int) error {
		s.e.CreateNamespace(stockNamespace(1 + i))
		return nil
	})
	for i := 1; i < clusters; i++ {
		etcd.putAll(s.b, s.copies(i))
		if i%200 == 0 {
			progress("%d of %d clusters exist after %s", i, clusters, time.Since(began).Round(time.Second))
		}
	}
	s.clusters = clusters
}

// copies returns the objects of a copy of the first cluster.
func (s *stockSite) copies(i int) (all []entry) {
	namespace, vlan := []byte(stockNamespace(i)), 1+(stockVLAN-1+i)%vlans
	own := func(uid []byte) []byte {
		return []byte(uuid.NewSHA1(uuid.NameSpaceOID, slices.Concat(uid, namespace)).String())
	}
	for _, kv := range s.first {
		value := bytes.ReplaceAll(kv.Value, []byte(stockNamespace(0)), namespace)
		value = uids.ReplaceAllFunc(value, own)
		if value[0] == '{' { // the others are Protobuf, which has the lengths of all texts
			value = bytes.ReplaceAll(value, fmt.Appendf(nil, `"vlanId":%d`, stockVLAN), fmt.Appendf(nil, `"vlanId":%d`, vlan))
			value = bytes.ReplaceAll(value, fmt.Appendf(nil, `vlan%d`, stockVLAN), fmt.Appendf(nil, `vlan%d`, vlan))
		}
		if bytes.HasPrefix(kv.Key, []byte("/registry/vitistack.io/machines/")) { // the MAC address of a machine is derived from its first UID
			first := slices.Concat([]byte(`"annotations":{"`+v1alpha1.AnnotationFormerUIDs+`":"`), uidIn(kv.Value), []byte(`",`))
			value = bytes.Replace(value, []byte(`"annotations":{`), first, 1)
		}
		key := bytes.ReplaceAll(kv.Key, []byte(stockNamespace(0)), namespace)
		all = append(all, entry{bytes.ReplaceAll(key, fmt.Appendf(nil, `vlan%d`, stockVLAN), fmt.Appendf(nil, `vlan%d`, vlan)), value})
	}
	return all
}

// uidIn returns the UID of an object in JSON.
func uidIn(object []byte) []byte {
	var o struct{ Metadata metav1.ObjectMeta }
	_ = json.Unmarshal(object, &o) // etcd has what the API server wrote
	return []byte(o.Metadata.UID)
}

// restart starts the stack on the copies.
func (s *stockSite) restart() {
	s.b.Helper()
	s.e.Stop()
	began := time.Now()
	s.e.Run()
	s.b.ReportMetric(time.Since(began).Seconds(), "s-start")
	s.measure("first-round", func() {})
}

// measure reports how long an action takes, until all events are delivered, and the requests and deliveries that it causes.
func (s *stockSite) measure(what string, act func()) {
	s.b.Helper()
	began, before, delivered := time.Now(), usages(s.b, s.e), s.delivered()
	act()
	acted := time.Since(began)
	awaitQuiet(s.b, s.e, 3*time.Second)
	requests := tally{}
	requests.add(s.e, began)
	s.b.ReportMetric(acted.Seconds(), "s-"+what)
	s.b.ReportMetric(time.Since(began).Seconds(), "s-until-quiet-"+what)
	s.b.ReportMetric(float64(requests.total()), "requests-"+what)
	s.b.ReportMetric(float64(requests.writes), "writes-"+what)
	s.b.ReportMetric(float64(s.delivered()-delivered), "deliveries-"+what)
	progress("%s: %s, and %s until all is quiet; %d requests, %d of them writes; %d deliveries", what, acted.Round(time.Millisecond),
		time.Since(began).Round(time.Millisecond), requests.total(), requests.writes, s.delivered()-delivered)
	explain(s.b, s.e, began, before, 1)
}

// delivered returns the number of deliveries since the start.
func (s *stockSite) delivered() (n int64) {
	for _, t := range s.e.Report().Triggers {
		n += t.Delivered
	}
	return n
}

// addMachine creates a Machine, and waits until it is Running.
func (s *stockSite) addMachine(name string) {
	s.b.Helper()
	s.e.Apply(stockNamespace(0), "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: "+name+"}\nspec: {template: small, providerRef: {name: kubevirt}}\n")
	s.e.UntilPhase(engine.Machines, stockNamespace(0), name, "Running")
}

// addCluster creates a cluster, and waits until it is Running.
func (s *stockSite) addCluster() {
	s.b.Helper()
	s.e.Apply(stockNamespace(0), fmt.Sprintf(manyClusters, 1))
	s.e.UntilPhase(engine.KubernetesClusters, stockNamespace(0), "cluster-1", "Running")
}

// deleteCluster deletes that cluster, and waits until it is gone.
func (s *stockSite) deleteCluster() {
	s.b.Helper()
	s.e.Delete(engine.KubernetesClusters, stockNamespace(0), "cluster-1")
	feed.Until(s.b, "the cluster is deleted", func() (bool, string) {
		return s.e.Get(engine.KubernetesClusters, stockNamespace(0), "cluster-1") == nil, ""
	})
}

// changeMachines changes each Machine of the copies once, as fast as etcd writes.
func (s *stockSite) changeMachines() {
	s.b.Helper()
	etcd := openStore(s.e)
	var changed []entry
	for i := 1; i < s.clusters; i++ {
		for _, kv := range etcd.list(s.b, "/registry/vitistack.io/machines/"+stockNamespace(i)) {
			kv.Value = bytes.Replace(kv.Value, []byte(`"labels":{`), []byte(`"labels":{"bench":"changed",`), 1)
			changed = append(changed, kv)
		}
	}
	if n := nodesOfStock * (s.clusters - 1); len(changed) != n {
		s.b.Fatalf("%d Machines exist, want %d", len(changed), n)
	}
	etcd.putAll(s.b, changed)
}
