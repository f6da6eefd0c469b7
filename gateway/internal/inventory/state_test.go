package inventory_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

var then = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

// about is the metadata of an object whose UID is its name.
func about(namespace, name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: version, CreationTimestamp: then,
	}
}

func ready(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason, Message: message, LastTransitionTime: then}}
}

func machine(name, version, phase string) *v1alpha1.Machine {
	m := &v1alpha1.Machine{ObjectMeta: about("team-a", name, version)}
	m.Labels = map[string]string{v1alpha1.LabelClusterName: "shop"}
	m.Spec.Template = "medium"
	m.Status.Phase, m.Status.Provider = v1alpha1.MachinePhase(phase), "kv"
	m.Status.Conditions = ready(metav1.ConditionFalse, "WaitingForNetwork", "waiting for an address")
	return m
}

func cluster(version string, nodes ...string) *v1alpha1.KubernetesCluster {
	c := &v1alpha1.KubernetesCluster{ObjectMeta: about("team-a", "shop", version)}
	c.Spec.Data.Provider = "talos"
	c.Spec.Topology.Version = "1.33"
	c.Spec.Topology.ControlPlane.Replicas = 1
	c.Spec.Topology.Workers = []v1alpha1.WorkerPool{{Name: "pool", Replicas: 2}}
	c.Status.Phase = v1alpha1.ClusterProvisioning
	for i, s := range nodes {
		c.Status.Nodes = append(c.Status.Nodes, v1alpha1.NodeStatus{Name: string(rune('a' + i)), Role: "worker", State: s})
	}
	return c
}

func provider(kind v1alpha1.ProviderType, phase v1alpha1.ProviderPhase) *v1alpha1.MachineProvider {
	p := &v1alpha1.MachineProvider{ObjectMeta: about("", "kv", "1")}
	p.Spec.Type, p.Status.Phase, p.Status.Version = kind, phase, "v1.9"
	return p
}

// put stores what a Kubernetes object tells.
func put(t *testing.T, s *inventory.Store, objects ...any) {
	t.Helper()
	for _, from := range objects {
		o, err := inventory.FromKubernetes(from)
		if err != nil {
			t.Fatal(err)
		}
		s.Put(o)
	}
}

func decode(t *testing.T, b []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("decode %s: %v", b, err)
	}
	return v
}

func TestClustersAsTheListHasThem(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	put(t, s, provider(v1alpha1.ProviderKubeVirt, v1alpha1.ProviderReady), cluster("1", "Ready", "Ready", "Configured"), machine("shop-cp-0", "1", "Running"))
	snapshot, _ := s.Commit(then.Time)
	got := decode(t, snapshot.Collection(inventory.TopicClusters).List().Plain)
	want := decode(t, []byte(`{"clusters":[{"id":"shop","name":"shop","namespace":"team-a","status":"inactive",
		"nodes":{"total":3,"ready":2},"operators":{"proxmox":false,"talos":true,"kea":false,"kubeVirt":true},
		"lastUpdated":"2026-01-02T03:04:05Z"}]}`))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
}

func TestInfrastructure(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	running := machine("b", "1", "Running")
	running.Status.Conditions = append(running.Status.Conditions, metav1.Condition{Type: "StorageReady", Status: metav1.ConditionTrue, Reason: "Bound"})
	network := &v1alpha2.NetworkNamespace{ObjectMeta: about("team-a", "net", "1")}
	network.Status.ProvisioningPhase = v1alpha2.ProvisioningReady
	put(t, s, provider(v1alpha1.ProviderKubeVirt, v1alpha1.ProviderReady), machine("a", "1", "Creating"), running, machine("c", "1", "Stopped"), network)
	snapshot, _ := s.Commit(then.Time)
	got := decode(t, snapshot.Infrastructure().Plain)
	want := decode(t, []byte(`{"summary":{"machines":{"total":3,"running":1,"pending":1,"failed":0},"networks":{"total":1,"active":1},
		"storage":{"total":3,"available":1}},"operators":{
		"proxmox":{"status":"unknown","version":"","resources":{"total":0,"healthy":0,"failed":0}},
		"talos":{"status":"unknown","version":"","resources":{"total":0,"healthy":0,"failed":0}},
		"kea":{"status":"healthy","version":"","resources":{"total":0,"healthy":0,"failed":0}},
		"kubevirt":{"status":"healthy","version":"v1.9","resources":{"total":1,"healthy":1,"failed":0}}}}`))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("infrastructure (-want +got):\n%s", diff)
	}
}

func TestCommitTellsWhatChanged(t *testing.T) {
	t.Parallel()
	base := []any{provider(v1alpha1.ProviderKubeVirt, v1alpha1.ProviderReady), cluster("1", "Ready"), machine("m", "1", "Pending")}
	other := provider(v1alpha1.ProviderProxmox, v1alpha1.ProviderReady)
	other.ResourceVersion = "2"
	renamed := machine("m", "2", "Pending")
	renamed.UID = "another"
	cases := map[string]struct {
		reason string
		change func(*testing.T, *inventory.Store)
		want   []string
	}{
		"Nothing": {reason: "the same version again is no news", change: func(t *testing.T, s *inventory.Store) { put(t, s, machine("m", "1", "Pending")) }},
		"Phase":   {reason: "a machine in another phase is news", change: func(t *testing.T, s *inventory.Store) { put(t, s, machine("m", "2", "Running")) }, want: []string{"machines +m"}},
		"Gone": {reason: "a cluster counts its machines", change: func(_ *testing.T, s *inventory.Store) {
			s.Remove(inventory.KindMachine, inventory.Key{Namespace: "team-a", Name: "m"})
		}, want: []string{"clusters +shop", "machines -m"}},
		"Recreated": {reason: "a new object of an old name is another one", change: func(t *testing.T, s *inventory.Store) { put(t, s, renamed) }, want: []string{"machines +another", "machines -m"}},
		"Provider":  {reason: "a provider's type is its machines' operator", change: func(t *testing.T, s *inventory.Store) { put(t, s, other) }, want: []string{"clusters +shop", "machines +m", "operators +proxmox", "operators -kubevirt", "providers +kv"}},
		"Relist":    {reason: "what a list leaves out is gone", change: func(_ *testing.T, s *inventory.Store) { s.Replace(inventory.KindCluster, nil) }, want: []string{"clusters -shop", "operators -talos"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := inventory.NewStore("e")
			put(t, s, base...)
			before, _ := s.Commit(then.Time)
			tc.change(t, s)
			after, changes := s.Commit(then.Time)
			var got []string
			for _, c := range changes {
				for _, i := range c.Upserts {
					got = append(got, string(c.Topic)+" +"+i.ID)
				}
				for _, i := range c.Removes {
					got = append(got, string(c.Topic)+" -"+i.ID)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if (len(tc.want) == 0) != (before == after) {
				t.Errorf("%s: a new snapshot is made exactly when something has changed", tc.reason)
			}
		})
	}
}

// TestSnapshotsStay holds that a snapshot is not touched by what comes after it.
func TestSnapshotsStay(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	put(t, s, machine("a", "1", "Pending"), machine("b", "1", "Pending"))
	first, _ := s.Commit(then.Time)
	want := string(first.Collection(inventory.TopicMachines).Find("a").JSON)
	put(t, s, machine("a", "2", "Running"), machine("c", "1", "Pending"))
	s.Remove(inventory.KindMachine, inventory.Key{Namespace: "team-a", Name: "b"})
	second, _ := s.Commit(then.Time)
	if got := string(first.Collection(inventory.TopicMachines).Find("a").JSON); got != want || first.Collection(inventory.TopicMachines).Find("b") == nil {
		t.Error("the first snapshot has changed")
	}
	now := second.Collection(inventory.TopicMachines)
	if now.Find("b") != nil || now.Find("c") == nil || now.Find("a").Phase != "Running" || now.FindNamed("team-a", "c") != now.Find("c") {
		t.Errorf("the second snapshot is not what was stored")
	}
	if now.ETag("e") == first.Collection(inventory.TopicMachines).ETag("e") {
		t.Error("two lists have one entity tag")
	}
}

func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	m := machine("m", "1", "Pending")
	m.Spec.CloudInit = &v1alpha1.CloudInit{UserData: "password: hunter2", NetworkData: "hunter2"}
	m.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"userData":"hunter2"}`, "team": "a"}
	o, err := inventory.FromKubernetes(m)
	if err != nil {
		t.Fatal(err)
	}
	shown := string(o.Spec) + string(o.Status)
	for k, v := range o.Annotations {
		shown += k + v
	}
	if strings.Contains(shown, "hunter2") {
		t.Errorf("cloud-init data is shown: %s", shown)
	}
	if m.Spec.CloudInit.UserData != "password: hunter2" {
		t.Error("the object that was read has been changed")
	}
}

func TestReservationsAreAllocations(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	n := &v1alpha1.NetworkConfiguration{ObjectMeta: about("team-a", "m", "1")}
	n.Spec.NetworkNamespaceName = "net"
	n.Spec.NetworkInterfaces = []v1alpha1.InterfaceSpec{{Name: "eth0", MACAddress: "02:00:00:00:00:01"}}
	n.Status.NetworkInterfaces = []v1alpha1.InterfaceStatus{{Name: "eth0", IPv4Addresses: []string{"10.0.0.5"}, AllocationMethod: v1alpha2.AllocationDHCP, DHCPReserved: true}}
	put(t, s, n)
	snapshot, _ := s.Commit(then.Time)
	items := snapshot.Collection(inventory.TopicAllocations).Items
	if len(items) != 1 || items[0].Attribute("address") != "10.0.0.5" || items[0].Attribute("method") != "dhcp" || items[0].Status != "running" {
		t.Fatalf("allocations: %+v", items)
	}
	s.Remove(inventory.KindConfiguration, inventory.Key{Namespace: "team-a", Name: "m"})
	if snapshot, _ = s.Commit(then.Time); len(snapshot.Collection(inventory.TopicAllocations).Items) != 0 {
		t.Error("the reservation outlives its holder")
	}
}

func TestOperators(t *testing.T) {
	t.Parallel()
	second := provider(v1alpha1.ProviderKubeVirt, v1alpha1.ProviderReady)
	second.Name, second.UID = "kv2", "kv2"
	function := &inventory.KnativeService{ObjectMeta: about("vitistack-system", "create-vm", "1")}
	function.Status.Conditions = ready(metav1.ConditionFalse, "RevisionFailed", "no image")
	cases := map[string]struct {
		reason  string
		objects []any
		probe   *inventory.Probe
		want    string
	}{
		"Ready":    {reason: "a provider that is ready is healthy", objects: []any{provider("kubevirt", "Ready")}, want: "healthy"},
		"Offline":  {reason: "one that does not answer is unreachable", objects: []any{provider("kubevirt", "Offline")}, want: "unreachable"},
		"Failed":   {reason: "one that has failed is unhealthy", objects: []any{provider("kubevirt", "Failed")}, want: "unhealthy"},
		"Half":     {reason: "one of two is degraded", objects: []any{provider("kubevirt", "Offline"), second}, want: "degraded"},
		"Function": {reason: "a function that cannot run degrades", objects: []any{provider("kubevirt", "Ready"), function}, want: "degraded"},
		"Probe":    {reason: "the operator's own word counts", objects: []any{provider("kubevirt", "Ready")}, probe: &inventory.Probe{Status: "unhealthy"}, want: "unhealthy"},
		"Unused":   {reason: "an operator that nothing uses is left out", want: ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := inventory.NewStore("e")
			put(t, s, tc.objects...)
			if tc.probe != nil {
				s.SetProbe("kubevirt", *tc.probe)
			}
			snapshot, _ := s.Commit(then.Time)
			got := ""
			if i := snapshot.Collection(inventory.TopicOperators).Find("kubevirt"); i != nil {
				got = i.Status
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"Pending": "pending", "Creating": "pending", "Running": "running", "Failed": "failed",
		"Stopped": "unknown", "Deleting": "unknown", "": "pending",
	}
	got := map[string]string{}
	for phase := range want {
		s := inventory.NewStore("e")
		put(t, s, machine("m", "1", phase))
		snapshot, _ := s.Commit(then.Time)
		got[phase] = snapshot.Collection(inventory.TopicMachines).Items[0].Status
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("machine statuses (-want +got):\n%s", diff)
	}
}
