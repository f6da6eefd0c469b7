package app

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/tests/fakeapi"
)

// names are the names in a list, in its order.
func names(t *testing.T, r reply, field string) []string {
	t.Helper()
	var all []string
	list, ok := r.object(t)[field].([]any)
	if !ok {
		t.Fatalf("no %s in %s", field, r.body)
	}
	for _, i := range list {
		name, _ := i.(map[string]any)["name"].(string)
		all = append(all, name)
	}
	return all
}

// furnish fills the API server with a little of everything.
func furnish(t *testing.T, s *env) {
	t.Helper()
	p := &v1alpha1.MachineProvider{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "MachineProvider"}, ObjectMeta: meta("", "kv")}
	p.Spec.Type, p.Status.Phase, p.Status.Version = v1alpha1.ProviderKubeVirt, v1alpha1.ProviderReady, "v1.9.0"
	p.Status.Nodes = []v1alpha1.ProviderNode{{Name: "pve1", Ready: true}}
	s.api.Put(t, "machineproviders", p)
	n := aNetwork("team-a", "net")
	n.Status.IPv4Prefix, n.Status.VLANID = "10.0.0.0/24", 7
	n.Status.IPAllocationSummary = &v1alpha2.IPAllocationSummary{TotalCount: 250, AllocatedCount: 3, AvailableCount: 247}
	s.api.Put(t, "networknamespaces", n)
	c := aCluster("team-a", "shop", "Running")
	c.Spec.NetworkNamespaceName = "net"
	c.Spec.Topology.Workers = []v1alpha1.WorkerPool{{Name: "pool", Replicas: 1}}
	c.Status.Nodes = []v1alpha1.NodeStatus{{Name: "shop-cp-0", Role: "control-plane", State: "Ready"}, {Name: "shop-pool-0", Role: "worker", State: "NotReady"}}
	c.Status.Conditions = []metav1.Condition{
		{Type: "Bootstrapped", Status: "True", Reason: "Done", LastTransitionTime: metav1.NewTime(born.Add(30e9))},
		{Type: "MachinesRunning", Status: "True", Reason: "Done", LastTransitionTime: metav1.NewTime(born.Add(20e9))},
		{Type: "NodesReady", Status: "False", Reason: "Waiting", Message: "waiting for shop-pool-0", LastTransitionTime: metav1.NewTime(born.Add(30e9))},
	}
	s.api.Put(t, "kubernetesclusters", c)
	s.api.Put(t, "kubernetesclusters", aCluster("team-b", "blog", "Failed"))
	for i, phase := range []string{"Running", "Creating", "Failed"} {
		m := aMachine("team-a", fmt.Sprintf("shop-cp-%d", i), phase)
		m.Labels = map[string]string{v1alpha1.LabelClusterName: "shop", v1alpha1.LabelClusterRole: "control-plane"}
		m.Status.Provider, m.Status.NodeName = "kv", "host-1"
		m.Status.IPAddresses = []string{fmt.Sprintf("10.0.0.%d", 5+i), fmt.Sprintf("2001:db8::%d", 5+i)}
		m.Annotations = map[string]string{"note": "x"}
		s.api.Put(t, "machines", m)
	}
	nc := &v1alpha1.NetworkConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "NetworkConfiguration"}, ObjectMeta: meta("team-a", "shop-cp-0")}
	nc.UID = "uid-nc"
	nc.Labels = map[string]string{v1alpha1.LabelMachine: "shop-cp-0"}
	nc.Spec.NetworkNamespaceName = "net"
	nc.Status.NetworkInterfaces = []v1alpha1.InterfaceStatus{{Name: "eth0", MACAddress: "02:00:00:00:00:01", IPv4Addresses: []string{"10.0.0.5"}, IPAllocated: true, AllocationMethod: "static"}}
	s.api.Put(t, "networkconfigurations", nc)
	a := &v1alpha2.IPAllocation{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha2", Kind: "IPAllocation"}, ObjectMeta: meta("team-a", "shop-cp-0-eth0")}
	a.Spec.NetworkNamespaceName, a.Status.Address, a.Status.Phase = "net", "10.0.0.5", v1alpha2.IPAllocationAllocated
	s.api.Put(t, "ipallocations", a)
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: meta("", "host-1")}
	node.Labels = map[string]string{"kubevirt.io/schedulable": "true"}
	s.api.Put(t, "nodes", node)
	// The clusters among the resources: requests for clusters are what TestMetrics counts.
	for list, n := range map[string]string{
		"providers": "1", "hosts": "2", "networks": "1", "resources?type=cluster": "2", "machines": "3", "addresses": "1", "allocations": "1",
	} {
		eventually(t, "all "+list+" to be seen", func() bool { return s.get("/api/v1/"+list).Header.Get("X-Total-Count") == n })
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	s := start(t)
	furnish(t, s)
	cases := map[string]struct {
		reason, path, field string
		want                []string
	}{
		"Machines":    {reason: "all, by namespace and name", path: "machines", field: "machines", want: []string{"shop-cp-0", "shop-cp-1", "shop-cp-2"}},
		"Status":      {reason: "one of two values", path: "machines?status=failed,running", field: "machines", want: []string{"shop-cp-0", "shop-cp-2"}},
		"Both":        {reason: "two conditions hold both", path: "machines?status=failed&cluster=shop&operator=kubevirt", field: "machines", want: []string{"shop-cp-2"}},
		"None":        {reason: "a value that nothing has", path: "machines?cluster=other", field: "machines"},
		"Text":        {reason: "text in any case", path: "machines?q=CP-1", field: "machines", want: []string{"shop-cp-1"}},
		"TextHost":    {reason: "text in an attribute", path: "machines?q=host-1&limit=1", field: "machines", want: []string{"shop-cp-0"}},
		"Sorted":      {reason: "by a key, reversed, and then another", path: "machines?sort=-status,name", field: "machines", want: []string{"shop-cp-0", "shop-cp-1", "shop-cp-2"}},
		"Reversed":    {reason: "by name, reversed", path: "machines?sort=-name", field: "machines", want: []string{"shop-cp-2", "shop-cp-1", "shop-cp-0"}},
		"Clusters":    {reason: "of one namespace", path: "clusters?namespace=team-b", field: "clusters", want: []string{"blog"}},
		"ClusterType": {reason: "by an attribute that the list does not show", path: "clusters?type=talos&sort=-name", field: "clusters", want: []string{"shop", "blog"}},
		"Others":      {reason: "all but one value", path: "machines?status!=failed", field: "machines", want: []string{"shop-cp-0", "shop-cp-1"}},
		"AllOthers":   {reason: "all but two values", path: "machines?status!=failed,running", field: "machines", want: []string{"shop-cp-1"}},
		"Range":       {reason: "a range includes its bounds", path: "networks?vlan>=7&vlan<=7", field: "networks", want: []string{"net"}},
		"Below":       {reason: "a range compares numbers, not text", path: "networks?vlan>=10", field: "networks"},
		"Encoded":     {reason: "an operator that a client has encoded", path: "networks?vlan%3E=7&vlan%3C=10", field: "networks", want: []string{"net"}},
		"Times":       {reason: "a time in another zone", path: "machines?createdAt<=2026-01-02T04:04:05%2B01:00&limit=1", field: "machines", want: []string{"shop-cp-0"}},
		"Numbers":     {reason: "numbers of machines", path: "machines?diskBytes>=9&sort=-memoryBytes,name&limit=1", field: "machines", want: []string{"shop-cp-0"}},
		"Address":     {reason: "any address of a machine, in any notation", path: "machines?address=2001:DB8:0::6", field: "machines", want: []string{"shop-cp-1"}},
		"AddressElse": {reason: "machines without the address", path: "machines?address!=2001:db8::6", field: "machines", want: []string{"shop-cp-0", "shop-cp-2"}},
		"AddressFrom": {reason: "a range of addresses", path: "machines?address>=2001:db8::6&address<=2001:db8::ffff", field: "machines", want: []string{"shop-cp-1", "shop-cp-2"}},
		"TextMAC":     {reason: "text in a value that is no attribute", path: "addresses?q=02:00:00:00:00:01", field: "addresses", want: []string{"shop-cp-0"}},
		"TextField":   {reason: "the name of a field is no text of an item", path: "machines?q=powerState", field: "machines"},
		"TextSpec":    {reason: "text in the status of a resource", path: "resources?q=waiting+for+shop-pool-0", field: "resources", want: []string{"shop"}},
		"Networks":    {reason: "by VLAN", path: "networks?vlan=7", field: "networks", want: []string{"net"}},
		"Addresses":   {reason: "of a machine", path: "addresses?machine=shop-cp-0", field: "addresses", want: []string{"shop-cp-0"}},
		"Allocations": {reason: "by address", path: "allocations?address=10.0.0.5", field: "allocations", want: []string{"shop-cp-0-eth0"}},
		"Providers":   {reason: "by type", path: "providers?type=kubevirt", field: "providers", want: []string{"kv"}},
		"Hosts":       {reason: "of a provider", path: "hosts?provider=kv&sort=-name", field: "hosts", want: []string{"pve1", "host-1"}},
		"VMs":         {reason: "KubeVirt is not there", path: "vms", field: "vms"},
		"Resources":   {reason: "one type of resource", path: "resources?type=cluster,network&sort=name", field: "resources", want: []string{"blog", "net", "shop"}},
		"Storage":     {reason: "a machine's disks", path: "resources?type=storage&q=cp-1", field: "resources", want: []string{"shop-cp-1-root"}},
		"AllOfThem":   {reason: "resources by type", path: "resources", field: "resources", want: []string{"shop", "blog", "shop-cp-0", "shop-cp-1", "shop-cp-2", "net", "shop-cp-0-root", "shop-cp-1-root", "shop-cp-2-root"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := s.get("/api/v1/" + tc.path)
			if diff := cmp.Diff(tc.want, names(t, r, tc.field)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if again := s.get("/api/v1/"+tc.path, "If-None-Match", r.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
				t.Errorf("%s: the same again is answered with %s", tc.reason, again.Status)
			}
		})
	}
	if got := string(s.get("/api/v1/machines?fields=status,name&limit=1").body); got != `{"machines":[{"status":"running","name":"shop-cp-0"}]}` {
		t.Errorf("two fields: %s", got)
	}
	for _, bad := range []string{"machines?color=red", "machines?fields=color", "machines?sort=color", "machines?limit=0", "machines?limit=x", "machines?limit=1001", "machines?continue=x", "resources?color=1", "events?limit=x", "events?type=" + strings.Repeat("a,", 1200), "events?since=yesterday", "events?color=red", "events?continue=-1", "dead-letters?x=1",
		// what cannot be, and what comes twice
		"clusters?lastUpdated=garbage", "clusters?createdAt>=garbage", "machines?status!=on", "networks?vlan=abc", "networks?vlan>=1,2", "networks?allocation=magic", "allocations?address=x",
		"events?kind=Bogus", "events?sort=data", "events?limit=1&limit=2", "machines?limit=1&limit=2", "machines?status=failed&status=running", "dead-letters?until=x",
		"infrastructure?x=1", "clusters/uid-shop?x=1", "clusters/uid-shop/timeline?x=1", "session?x=1", "version?x=1", "docs?x=1", "health?x=1", "stream?x=1", "stream?topics=a&topics=b"} {
		r := s.get("/api/v1/" + bad)
		if r.StatusCode != http.StatusBadRequest || r.object(t)["errors"] == nil {
			t.Errorf("%s: %s %s", bad, r.Status, r.body)
		}
	}
}

// TestPaging walks through pages while things come and go. What was there all the
// time has to come exactly once.
func TestPaging(t *testing.T) {
	t.Parallel()
	s := start(t)
	const stay = 25
	for i := range stay {
		s.api.Put(t, "machines", aMachine("team-a", fmt.Sprintf("stay-%02d", i), "Running"))
	}
	eventually(t, "the machines", func() bool { return s.get("/api/v1/machines").Header.Get("X-Total-Count") == fmt.Sprint(stay) })
	for _, sort := range []string{"", "&sort=-name", "&sort=status,-createdAt"} {
		seen := map[string]int{}
		path := "/api/v1/machines?limit=4" + sort
		for page := 0; path != ""; page++ {
			r := s.get(path)
			for _, name := range names(t, r, "machines") {
				seen[name]++
			}
			if page == 2 {
				s.api.Put(t, "machines", aMachine("team-a", "aaa", "Running"))
				s.api.Put(t, "machines", aMachine("team-a", "zzz", "Running"))
				s.api.Put(t, "machines", aMachine("team-a", "stay-99", "Running"))
			}
			path = nextOf(t, r)
		}
		for i := range stay {
			if n := seen[fmt.Sprintf("stay-%02d", i)]; n != 1 {
				t.Errorf("sorted by %q, stay-%02d came %d times", sort, i, n)
			}
		}
	}
	r := s.get(nextOf(t, s.get("/api/v1/machines?limit=4")) + "&status=running")
	if r.StatusCode != http.StatusBadRequest {
		t.Errorf("a place in another list is taken for one in this: %s", r.Status)
	}
}

// TestManyClusters lists more clusters than fit on a page. A list without a limit has all of them, with a filter and for a limited key too, because
// the body cannot say that it is truncated.
func TestManyClusters(t *testing.T) {
	t.Parallel()
	whole, wholeLine := keyLine(t, "whole", "read")
	limited, limitedLine := limitedKey(t, "limited", "read", "team-a")
	const n = inventory.PageSize + 1
	s := startCold(t, func(api *fakeapi.Server) {
		for i := range n {
			api.Put(t, "kubernetesclusters", aCluster("team-a", fmt.Sprintf("c%04d", i), "Running"))
		}
	}, "--auth.enabled=true", "--auth.keys="+wholeLine+","+limitedLine)
	s.waitReady()
	for _, request := range []struct {
		key, query string
		want       int
	}{{whole, "", n}, {whole, "?status=active", n}, {whole, "?sort=-name", n}, {limited, "", n}, {whole, "?limit=10", 10}, {limited, "?limit=1000", 1000}} {
		r := s.get("/api/v1/clusters"+request.query, "Authorization", "Bearer "+request.key)
		if got := len(names(t, r, "clusters")); got != request.want || (nextOf(t, r) != "") != (got < n) || r.Header.Get("X-Total-Count") != fmt.Sprint(n) {
			t.Errorf("%q lists %d of %s, want %d; the next page is %q", request.query, got, r.Header.Get("X-Total-Count"), request.want, nextOf(t, r))
		}
	}
}

// nextOf is the address of the next page, or empty.
func nextOf(t *testing.T, r reply) string {
	t.Helper()
	link := r.Header.Get("Link")
	if link == "" {
		return ""
	}
	address, rest, ok := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	if !ok || rest != `; rel="next"` {
		t.Fatalf("link: %s", link)
	}
	return address
}

func TestDetails(t *testing.T) {
	t.Parallel()
	s := start(t)
	furnish(t, s)
	want := map[string]any{
		"id": "uid-shop", "name": "shop", "namespace": "team-a", "type": "talos", "status": "active",
		"nodes":      map[string]any{"total": 2.0, "ready": 1.0, "unready": 1.0},
		"networking": map[string]any{"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12", "dnsName": "cluster.local"},
		"operators":  map[string]any{"installed": []any{"talos", "kubevirt"}, "healthy": []any{"talos", "kubevirt"}},
		"metadata":   map[string]any{"createdAt": "2026-01-02T03:04:05Z", "updatedAt": "2026-01-02T03:04:05Z", "version": "1.33"},
	}
	for _, id := range []string{"uid-shop", "team-a%2Fshop", "team-a%2fshop", "team-a/shop"} {
		if diff := cmp.Diff(want, s.get("/api/v1/clusters/"+id).object(t)); diff != "" {
			t.Errorf("cluster by %s (-want +got):\n%s", id, diff)
		}
	}
	for path, name := range map[string]string{
		"machines/uid-shop-cp-1": "shop-cp-1", "networks/team-a%2Fnet": "net", "providers/kv": "kv", "hosts/host-1": "host-1",
		"machines/team-a/shop-cp-1": "shop-cp-1", "networks/team-a/net": "net", "resources/team-a/shop": "shop", "resources/team-a%2Fshop-cp-1.disk.root": "shop-cp-1-root",
		"clusters/team-a/shop/timeline": "shop", "clusters/team-a/shop/conditions": "shop", "clusters/uid-shop/conditions": "shop",
		"addresses/uid-nc": "shop-cp-0", "allocations/uid-shop-cp-0-eth0": "shop-cp-0-eth0",
		"resources/uid-net": "net", "resources/uid-shop-cp-0.disk.root": "shop-cp-0-root",
	} {
		if got := s.get("/api/v1/" + path).object(t)["name"]; got != name {
			t.Errorf("%s is %v, want %s", path, got, name)
		}
	}
	if got := s.get("/api/v1/operators/kubevirt").object(t)["status"]; got != "healthy" {
		t.Errorf("operator kubevirt is %v", got)
	}
	for _, path := range []string{"clusters/none", "machines/none", "resources/none", "resources/uid-shop.disk.root", "resources/uid-shop-cp-0.disk.none", "operators/none", "clusters/none/timeline", "clusters/none/manifests", "clusters/none/conditions", "clusters/team-a/none", "clusters/team-a/none/conditions", "machines/team-b/shop-cp-0"} {
		if r := s.get("/api/v1/" + path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	var waits map[string]any
	for _, c := range s.get("/api/v1/clusters/team-a/shop/conditions").object(t)["conditions"].([]any) {
		if condition := c.(map[string]any); condition["type"] == "NodesReady" {
			waits = condition
		} else if condition["advice"] != nil {
			t.Errorf("there is advice for a condition that is True: %v", condition)
		}
	}
	if waits["message"] != "waiting for shop-pool-0" || waits["owner"] == nil || waits["advice"] == "" {
		t.Errorf("the condition that is not True: %v", waits)
	}
	same := aNetwork("team-a", "shop")
	same.UID = "uid-network-shop"
	s.api.Put(t, "networknamespaces", same)
	eventually(t, "a network with the name of a cluster", func() bool { return s.get("/api/v1/resources/team-a/shop").StatusCode == http.StatusConflict })
	if r := s.get("/api/v1/resources/team-a/shop"); !strings.Contains(string(r.body), "uid-shop for the cluster, or uid-network-shop for the network") {
		t.Errorf("two resources of one name: %s", r.body)
	}
	detail := s.get("/api/v1/resources/uid-shop-cp-0").object(t)
	if detail["statusDetail"].(map[string]any)["phase"] != "Running" || detail["spec"].(map[string]any)["template"] != "small" || detail["status"] != "running" {
		t.Errorf("resource: %v", detail)
	}
}

func TestManifests(t *testing.T) {
	t.Parallel()
	s := start(t)
	furnish(t, s)
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta("team-a", "shop-manifests")}
	cm.Labels = map[string]string{v1alpha1.LabelClusterName: "shop", v1alpha1.LabelManagedBy: "bootstrap-talos"}
	cm.Data = map[string]string{"a.yaml": "key: LS0tLS1CRUdJTiBFRDI1NTE5IFBSSVZBVEUgS0VZLS0tLS0K"}
	s.api.Put(t, "configmaps", cm)
	more := cm.DeepCopy() // those of the pools have ConfigMaps of their own
	more.Name, more.UID, more.Data = "shop-manifests-pool-0", "", map[string]string{"b.yaml": "kind: Machine"}
	s.api.Put(t, "configmaps", more)
	out := s.get("/api/v1/clusters/uid-shop/manifests").object(t)
	want := []any{map[string]any{"name": "a.yaml", "content": "", "redacted": true}, map[string]any{"name": "b.yaml", "content": "kind: Machine"}}
	if diff := cmp.Diff(want, out["files"]); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	before := s.api.Requests("configmaps")
	s.get("/api/v1/clusters/uid-shop/manifests")
	if s.api.Requests("configmaps") != before {
		t.Error("the second look asked the API server again")
	}
}

func TestHistory(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.api.Put(t, "machines", newborn("m1", "Running"))
	eventually(t, "the event", func() bool { return s.get("/api/v1/events").Header.Get("X-Total-Count") == "1" })
	s.api.Delete("machines", "team-a", "m1")
	eventually(t, "the second event", func() bool {
		return s.get("/api/v1/events?namespace=team-a&name=m1").Header.Get("X-Total-Count") == "2"
	})
	first := s.get("/api/v1/events?type=infrastructure.machine.*&limit=1")
	if got := first.object(t)["events"].([]any)[0].(map[string]any); got["id"] != "uid-m1.deleted" || got["type"] != events.TypeMachineDeleted {
		t.Errorf("the newest event: %v", got)
	}
	second := s.get(nextOf(t, first))
	if got := second.object(t)["events"].([]any)[0].(map[string]any); got["id"] != "uid-m1.created" || got["data"].(map[string]any)["namespace"] != "team-a" {
		t.Errorf("the one before: %v", got)
	}
	if link := second.Header.Get("Link"); link != "" {
		t.Errorf("the last page has a link: %s", link)
	}
	for query, want := range map[string][]string{
		"sort=time": {"uid-m1.created", "uid-m1.deleted"}, "sort=-time": {"uid-m1.deleted", "uid-m1.created"}, "sort=type": {"uid-m1.created", "uid-m1.deleted"},
		"sort=-type": {"uid-m1.deleted", "uid-m1.created"}, "sort=name": {"uid-m1.created", "uid-m1.deleted"}, "sort=sequence": {"uid-m1.created", "uid-m1.deleted"},
		"q=MACHINE.DEL": {"uid-m1.deleted"}, "q=team-a": {"uid-m1.deleted", "uid-m1.created"}, "q=100%25": nil, "kind=Machine": {"uid-m1.deleted", "uid-m1.created"}, "kind=KubernetesCluster": nil,
	} {
		var got []string
		for path := "/api/v1/events?limit=1&" + query; path != ""; {
			r := s.get(path)
			for _, e := range r.object(t)["events"].([]any) {
				got = append(got, e.(map[string]any)["id"].(string))
			}
			path = nextOf(t, r)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, page by page (-want +got):\n%s", query, diff)
		}
	}
	if r := s.get(nextOf(t, first) + "&source=x"); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a place in another list of events is taken: %s", r.Status)
	}
	if n := len(s.get("/api/v1/events?since=2100-01-01T00:00:00Z").object(t)["events"].([]any)); n != 0 {
		t.Errorf("%d events are from the future", n)
	}
	if n := len(s.get("/api/v1/events?until=" + url.QueryEscape("2000-01-01T00:00:00+01:00")).object(t)["events"].([]any)); n != 0 {
		t.Errorf("%d events are from the past", n)
	}
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "operator", "read+write")
	reader, readerLine := keyLine(t, "reader", "read")
	b := newBroker(t)
	s := start(t, "--broker.sink="+b.URL, "--auth.keys="+line+","+readerLine)
	const reference = `{"apiVersion":"vitistack.io/v1alpha1","kind":"Machine","namespace":"team-a","name":"m1"}`
	send := func(id, eventType, data string) {
		headers := []string{"Ce-Specversion", "1.0", "Ce-Id", id, "Ce-Source", "https://kubernetes", "Ce-Type", eventType,
			"Ce-Subject", "/apis/vitistack.io/v1alpha1/namespaces/team-a/machines/m1", "Ce-Kind", "Machine", "Ce-Namespace", "team-a", "Ce-Name", "m1", "Content-Type", "application/json",
			"Ce-Knativeerrordest", "http://create-vm.vitistack-system", "Ce-Knativeerrorcode", "422", "Ce-Knativeerrordata", "bm8gcHJvdmlkZXI="}
		if r := s.do(http.MethodPost, "/dead-letters", data, headers...); r.StatusCode != http.StatusAccepted {
			t.Fatalf("dead letter: %s %s", r.Status, r.body)
		}
	}
	send("raw-1", events.TypeRefUpdate, reference)
	send("raw-1", events.TypeRefUpdate, reference)
	letters := func(query string) []any {
		return s.get("/api/v1/dead-letters" + query).object(t)["deadLetters"].([]any)
	}
	all := letters("")
	if len(all) != 1 {
		t.Fatalf("the same letter twice is %d letters", len(all))
	}
	got := all[0].(map[string]any)
	if got["destination"] != "http://create-vm.vitistack-system" || got["code"] != 422.0 || got["error"] != "no provider" || got["name"] != "m1" || got["namespace"] != "team-a" {
		t.Errorf("dead letter: %v", got)
	}
	send("raw-2", "io.vitistack.workorder.approved", reference)
	for query, want := range map[string]int{
		"": 2, "?limit=1": 1, "?type=dev.knative.*": 1, "?namespace=team-b": 0, "?name=m1": 2, "?q=NO+PROVIDER": 2, "?q=raw-2": 1, "?destination=http://create-vm.vitistack-system": 2, "?since=2100-01-01T00:00:00Z": 0,
	} {
		if n := len(letters(query)); n != want {
			t.Errorf("%q lists %d letters, want %d", query, n, want)
		}
	}
	one := fmt.Sprintf("/api/v1/dead-letters/%v", got["sequence"])
	if s.get(one).object(t)["id"] != "raw-1" {
		t.Errorf("one letter: %s", s.get(one).body)
	}
	as := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	for _, r := range []reply{s.do(http.MethodDelete, one, ""), s.do(http.MethodPost, one+"/resend", "")} {
		if r.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a key: %s %s", r.Status, r.body)
		}
	}
	if r := s.do(http.MethodDelete, one, "", as(reader)...); r.StatusCode != http.StatusForbidden {
		t.Errorf("with a key that may read: %s %s", r.Status, r.body)
	}
	if r := s.do(http.MethodPost, one+"/resend", "", as(key)...); r.StatusCode != http.StatusNoContent {
		t.Fatalf("sending again: %s %s", r.Status, r.body)
	}
	eventually(t, "the request to reconcile the object", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.ContainsFunc(b.events, func(e event.Event) bool {
			return e.Type() == events.TypeResync && e.Subject() == "/apis/vitistack.io/v1alpha1/namespaces/team-a/machines/m1"
		})
	})
	left := letters("")
	if len(left) != 1 {
		t.Fatalf("%d letters are left", len(left))
	}
	signed := fmt.Sprintf("/api/v1/dead-letters/%v", left[0].(map[string]any)["sequence"])
	if r := s.do(http.MethodPost, signed+"/resend", "", as(key)...); r.StatusCode != http.StatusConflict {
		t.Errorf("a signed decision, whose signature is not kept: %s %s", r.Status, r.body)
	}
	for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
		if r := s.do(http.MethodDelete, signed, "", as(key)...); r.StatusCode != want {
			t.Errorf("discarding: %s, want %d", r.Status, want)
		}
	}
}

// TestResendToFunctions resends dead letters of functions. The Broker gets a request to reconcile the object of each.
func TestResendToFunctions(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "operator", "read+write")
	b := newBroker(t)
	s := start(t, "--broker.sink="+b.URL, "--auth.keys="+line)
	const subject = "/apis/vitistack.io/v1alpha1/namespaces/team-a/machines/"
	for name, tc := range map[string]struct{ reason, eventType, data string }{
		"reference": {"ApiServerSource in mode Reference sends the object's name", events.TypeRefUpdate, `{"apiVersion":"vitistack.io/v1alpha1","kind":"Machine","namespace":"team-a","name":"reference"}`},
		"resource":  {"ApiServerSource in mode Resource sends the object", events.TypeUpdate, `{"apiVersion":"vitistack.io/v1alpha1","kind":"Machine","metadata":{"namespace":"team-a","name":"resource"}}`},
		"deleted":   {"ApiServerSource in mode Resource sends the object", events.TypeDelete, `{"apiVersion":"vitistack.io/v1alpha1","kind":"Machine","metadata":{"namespace":"team-a","name":"deleted"}}`},
		"resync":    {"a request to reconcile has no data", events.TypeResync, ""},
	} {
		headers := []string{"Ce-Specversion", "1.0", "Ce-Id", name, "Ce-Source", "https://kubernetes", "Ce-Type", tc.eventType, "Ce-Subject", subject + name,
			"Ce-Kind", "Machine", "Ce-Namespace", "team-a", "Ce-Name", name, "Content-Type", "application/json"}
		if r := s.do(http.MethodPost, "/dead-letters?destination=create-vm", tc.data, headers...); r.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: dead letter: %s %s", name, r.Status, r.body)
		}
		letters := s.get("/api/v1/dead-letters?name="+name, "Authorization", "Bearer "+key).object(t)["deadLetters"].([]any)
		if len(letters) != 1 {
			t.Fatalf("%s: %d dead letters, want 1", name, len(letters))
		}
		one := fmt.Sprintf("/api/v1/dead-letters/%v/resend", letters[0].(map[string]any)["sequence"])
		if r := s.do(http.MethodPost, one, "", "Authorization", "Bearer "+key); r.StatusCode != http.StatusNoContent {
			t.Errorf("%s: %s: %s %s", name, tc.reason, r.Status, r.body)
			continue
		}
		eventually(t, "the request to reconcile "+name, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.ContainsFunc(b.events, func(e event.Event) bool {
				return e.Type() == events.TypeResync && e.Subject() == subject+name && e.Extensions()["kind"] == "Machine"
			})
		})
	}
}

// TestDeadLetterNamesItsTrigger sends dead letters as a Broker does that reports no receiver.
func TestDeadLetterNamesItsTrigger(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, query, reported, want string }{
		"Trigger":  {"the address names the Trigger", "?destination=create-vm", "", "create-vm"},
		"Reported": {"the Broker knows the receiver better", "?destination=create-vm", "http://kea-reserve", "http://kea-reserve"},
		"Neither":  {"neither side knows the receiver", "", "", ""},
		"TooLong":  {"no Trigger has such a name", "?destination=" + strings.Repeat("x", 64), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			headers := []string{"Ce-Specversion", "1.0", "Ce-Id", "raw-1", "Ce-Source", "https://kubernetes", "Ce-Type", events.TypeRefUpdate, "Content-Type", "application/json"}
			if tc.reported != "" {
				headers = append(headers, "Ce-Knativeerrordest", tc.reported)
			}
			if r := s.do(http.MethodPost, "/dead-letters"+tc.query, `{"kind":"Machine"}`, headers...); r.StatusCode != http.StatusAccepted {
				t.Fatalf("dead letter: %s %s", r.Status, r.body)
			}
			all := s.get("/api/v1/dead-letters").object(t)["deadLetters"].([]any)
			if len(all) != 1 {
				t.Fatalf("%s: %d letters, want 1", tc.reason, len(all))
			}
			if got, _ := all[0].(map[string]any)["destination"].(string); got != tc.want {
				t.Errorf("%s: got destination %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestPreview(t *testing.T) {
	t.Parallel()
	s := start(t)
	furnish(t, s)
	cluster := `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: new, namespace: team-a}
spec:
  data: {provider: talos}
  topology:
    version: "1.33"
    controlplane: {replicas: 1}
    workers: [{name: w, replicas: 2}]
`
	response := s.do(http.MethodPost, "/api/v1/preview", cluster, "Content-Type", "application/yaml")
	if response.StatusCode != http.StatusOK {
		t.Fatalf("preview: %s %s", response.Status, response.body)
	}
	out := response.object(t)
	if out["valid"] != true || len(out["warnings"].([]any)) != 1 {
		t.Errorf("preview: valid %v, errors %v, warnings %v", out["valid"], out["errors"], out["warnings"])
	}
	want := map[string]any{"machines": 3.0, "addresses": 3.0, "cpus": 8.0, "memoryBytes": float64(16 << 30), "diskBytes": float64(160 << 30)}
	if diff := cmp.Diff(want, out["totals"]); diff != "" {
		t.Errorf("totals (-want +got):\n%s", diff)
	}
	got := map[string]bool{}
	for _, o := range out["objects"].([]any) {
		object := o.(map[string]any)
		got[object["kind"].(string)+" "+object["name"].(string)] = true
	}
	for _, o := range []string{"Machine new-cp-0", "Machine new-w-1", "NetworkConfiguration new-w-0", "IPAllocation new-w-0-eth0", "PersistentVolumeClaim new-cp-0-root", "VirtualMachine new-w-1", "Secret new-kubeconfig", "ConfigMap new-manifests", "ConfigMap new-manifests-w-0"} {
		if !got[o] {
			t.Errorf("the preview lacks %s", o)
		}
	}
	cases := map[string]struct {
		reason, body, pointer string
		status                int
	}{
		"Even":     {reason: "an even control plane", body: strings.Replace(cluster, "replicas: 1", "replicas: 2", 1), pointer: "/spec/topology/controlplane/replicas", status: 200},
		"Template": {reason: "a size that does not exist", body: strings.Replace(cluster, "{replicas: 1}", "{replicas: 1, template: huge}", 1), pointer: "/spec/topology/controlplane/template", status: 200},
		"Type":     {reason: "a word for a number", body: strings.Replace(cluster, "replicas: 1", "replicas: one", 1), pointer: "/spec/topology/controlplane/replicas", status: 200},
		"Pools":    {reason: "two pools of one name", body: strings.Replace(cluster, "replicas: 2}", "replicas: 2}, {name: w, replicas: 1}", 1), pointer: "/spec/topology/workers/1/name", status: 200},
		"Unknown":  {reason: "a field that does not exist", body: strings.Replace(cluster, "version:", "vresion: x\n    version:", 1), pointer: "/spec/topology/vresion", status: 200},
		"Rule":     {reason: "a rule that compares two fields", body: strings.Replace(cluster, "replicas: 2}", "replicas: 2, autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 2}}", 1), pointer: "/spec/topology/workers/0", status: 200},
		"Name":     {reason: "a name that no object can have", body: strings.Replace(cluster, "name: new", "name: New_1", 1), pointer: "/metadata/name", status: 200},
		"Version":  {reason: "a version that no Talos runs", body: strings.Replace(cluster, "1.33", "1.99", 1), pointer: "/spec/topology/version", status: 200},
		"Second":   {reason: "every document is checked", body: cluster + "---\napiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: m, namespace: team-a}\nspec: {template: huge}\n", pointer: "/spec/template", status: 200},
		"Kind":     {reason: "another kind", body: "apiVersion: v1\nkind: Secret\n", status: 422},
		"NoYAML":   {reason: "no YAML", body: "{", status: 422},
		"Bomb":     {reason: "a document that unfolds without end", body: "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", status: 422},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := s.do(http.MethodPost, "/api/v1/preview", tc.body)
			if r.StatusCode != tc.status {
				t.Fatalf("%s: %s %s", tc.reason, r.Status, r.body)
			}
			if tc.status != 200 {
				return
			}
			found := false
			for _, e := range r.object(t)["errors"].([]any) {
				found = found || e.(map[string]any)["pointer"] == tc.pointer
			}
			if !found || r.object(t)["valid"] != false {
				t.Errorf("%s: %s", tc.reason, r.body)
			}
		})
	}
}
