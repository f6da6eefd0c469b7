package inventory_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// since is when a server's health changed, and seen is when it last answered.
var since, seen = then.Add(-time.Hour), then.Add(-2 * time.Hour)

// reports is the ConfigMap backends, with the health of servers by their keys.
func reports(version string, health map[string]backend.Health) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: about("vitistack-system", backend.ConfigMapBackends, version), Data: map[string]string{"unknown": "{}", "nam": "{"}}
	for key, h := range health {
		r := backend.Report{Health: h, Since: since, LastSeen: seen}
		if h != backend.Healthy {
			r.Reason, r.Message = "KeaUnavailable", "the request timed out"
		}
		text, _ := json.Marshal(r)
		c.Data[key] = string(text)
	}
	return c
}

// pve is a MachineProvider of Proxmox VE with one host.
func pve(name string, phase v1alpha1.ProviderPhase) *v1alpha1.MachineProvider {
	p := &v1alpha1.MachineProvider{ObjectMeta: about("", name, string(phase))}
	p.Spec.Type, p.Status.Phase = v1alpha1.ProviderProxmox, phase
	p.Status.Conditions = ready(metav1.ConditionFalse, "Unreachable", "the request timed out")
	p.Status.Nodes = []v1alpha1.ProviderNode{{Name: "host-of-" + name, Ready: true}}
	return p
}

// dhcp is a network whose addresses Kea reserves.
func dhcp() *v1alpha2.NetworkNamespace {
	n := &v1alpha2.NetworkNamespace{ObjectMeta: about("team-a", "net", "1")}
	n.Spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationDHCP}
	return n
}

// reservation is a NetworkConfiguration in the network with DHCP.
func reservation(name, reason string) *v1alpha1.NetworkConfiguration {
	c := &v1alpha1.NetworkConfiguration{ObjectMeta: about("team-a", name, reason)}
	c.Spec.NetworkNamespaceName, c.Status.Phase = "net", v1alpha1.NetworkConfigurationPending
	c.Status.Conditions = ready(metav1.ConditionFalse, reason, "")
	if reason == "NetworkConfigured" {
		c.Status.Phase, c.Status.Conditions = v1alpha1.NetworkConfigurationReady, ready(metav1.ConditionTrue, reason, "")
	}
	return c
}

// talosCluster is a bootstrapped cluster with a Machine in a phase.
func talosCluster(name, reason string, machinePhase v1alpha1.MachinePhase) []any {
	c := cluster("1", "Ready")
	c.Name, c.UID = name, types.UID("uid-"+name)
	c.Status.Phase, c.Status.Version = v1alpha1.ClusterRunning, "1.33.0"
	c.Status.Conditions = ready(metav1.ConditionFalse, reason, "")
	if reason == "ClusterRunning" {
		c.Status.Conditions = ready(metav1.ConditionTrue, reason, "")
	}
	m := machine(name+"-cp-0", "1", string(machinePhase))
	m.Labels[v1alpha1.LabelClusterName] = name
	return []any{c, m}
}

// healths returns the status of each operator in use.
func healths(s *inventory.Snapshot) map[string]string {
	all := map[string]string{}
	for _, i := range s.Collection(inventory.TopicOperators).Items {
		all[i.ID] = i.Status
	}
	return all
}

func TestHealthIsMeasured(t *testing.T) {
	t.Parallel()
	silent := inventory.NodeReachability{Silent: 2, LastSeen: seen}
	for name, tc := range map[string]struct {
		reason       string
		objects      []any
		reachability map[string]inventory.NodeReachability
		want         map[string]string
	}{
		"Kea":             {"it answers", []any{dhcp(), reports("1", map[string]backend.Health{"kea.primary": "healthy"})}, nil, map[string]string{"kea": "healthy"}},
		"KeaHangs":        {"it does not answer, although every reservation exists", []any{dhcp(), reservation("vm", "NetworkConfigured"), reports("1", map[string]backend.Health{"kea.primary": "unreachable"})}, nil, map[string]string{"kea": "unreachable"}},
		"KeaOfTwo":        {"the other server answers", []any{dhcp(), reports("1", map[string]backend.Health{"kea.primary": "unreachable", "kea.secondary": "healthy"})}, nil, map[string]string{"kea": "degraded"}},
		"KeaBack":         {"it answers again, and one object has not been reconciled since", []any{dhcp(), reservation("vm", "KeaUnavailable"), reports("1", map[string]backend.Health{"kea.primary": "healthy"})}, nil, map[string]string{"kea": "healthy"}},
		"KeaReadOnly":     {"it answers, and keeps nothing", []any{dhcp(), reservation("vm", "KeaNotPersisted"), reports("1", map[string]backend.Health{"kea.primary": "healthy"})}, nil, map[string]string{"kea": "unhealthy"}},
		"KeaUnreported":   {"the functions are older than the gateway", []any{dhcp(), reservation("vm", "KeaUnavailable")}, nil, map[string]string{"kea": "unreachable"}},
		"KeaMistake":      {"a requester asks for an address in use", []any{dhcp(), reservation("vm", "AddressTaken"), reservation("other", "PoolExhausted")}, nil, map[string]string{"kea": "healthy"}},
		"Proxmox":         {"a delivery has found the outage before resync has", []any{pve("a", v1alpha1.ProviderReady), reports("1", map[string]backend.Health{"proxmox.a": "unreachable"})}, nil, map[string]string{"proxmox": "unreachable"}},
		"ProxmoxOfTwo":    {"the other one answers", []any{pve("a", v1alpha1.ProviderReady), pve("b", v1alpha1.ProviderReady), reports("1", map[string]backend.Health{"proxmox.a": "unreachable", "proxmox.b": "healthy"})}, nil, map[string]string{"proxmox": "degraded"}},
		"ProxmoxBack":     {"the report is newer than the phase", []any{pve("a", v1alpha1.ProviderOffline), reports("1", map[string]backend.Health{"proxmox.a": "healthy"})}, nil, map[string]string{"proxmox": "healthy"}},
		"ProxmoxRefused":  {"it answers, and no machine can be made", []any{pve("a", v1alpha1.ProviderFailed), reports("1", map[string]backend.Health{"proxmox.a": "healthy"})}, nil, map[string]string{"proxmox": "unhealthy"}},
		"ProxmoxOld":      {"the functions are older than the gateway", []any{pve("a", v1alpha1.ProviderOffline)}, nil, map[string]string{"proxmox": "unreachable"}},
		"ProxmoxGone":     {"its MachineProvider is deleted", []any{reports("1", map[string]backend.Health{"proxmox.a": "unreachable"})}, nil, map[string]string{}},
		"Talos":           {"its nodes answer", talosCluster("shop", "ClusterRunning", v1alpha1.MachineRunning), map[string]inventory.NodeReachability{"uid-shop": {Answering: 2, LastSeen: seen}}, map[string]string{"talos": "healthy"}},
		"TalosHangs":      {"no node answers, and the status does not say so yet", talosCluster("shop", "ClusterRunning", v1alpha1.MachineRunning), map[string]inventory.NodeReachability{"uid-shop": silent}, map[string]string{"talos": "unreachable"}},
		"TalosFar":        {"the gateway has no route, and bootstrap-talos gets no answer", talosCluster("shop", "ClusterUnreachable", v1alpha1.MachineRunning), nil, map[string]string{"talos": "unreachable"}},
		"TalosBack":       {"nodes answer again, and the cluster has not been reconciled since", talosCluster("shop", "ClusterUnreachable", v1alpha1.MachineRunning), map[string]inventory.NodeReachability{"uid-shop": {Answering: 2, LastSeen: seen}}, map[string]string{"talos": "healthy"}},
		"TalosOfTwo":      {"the nodes of another cluster answer", append(talosCluster("shop", "ClusterRunning", v1alpha1.MachineRunning), talosCluster("other", "ClusterRunning", v1alpha1.MachineRunning)...), map[string]inventory.NodeReachability{"uid-shop": silent, "uid-other": {Answering: 1, LastSeen: seen}}, map[string]string{"talos": "degraded"}},
		"TalosNode":       {"one node is silent", talosCluster("shop", "ClusterRunning", v1alpha1.MachineRunning), map[string]inventory.NodeReachability{"uid-shop": {Answering: 1, Silent: 1, LastSeen: seen}}, map[string]string{"talos": "degraded"}},
		"TalosStopped":    {"a requester has stopped the machines", talosCluster("shop", "ClusterUnreachable", v1alpha1.MachineStopped), map[string]inventory.NodeReachability{"uid-shop": silent}, map[string]string{"talos": "healthy"}},
		"TalosMistake":    {"a requester asks for a version that does not exist", talosCluster("shop", "KubernetesVersionUnknown", v1alpha1.MachineRunning), nil, map[string]string{"talos": "healthy"}},
		"TalosLostItsKey": {"a requester has deleted the Secret of the keys", talosCluster("shop", "KeysLost", v1alpha1.MachineRunning), nil, map[string]string{"talos": "healthy"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := inventory.NewStore("e")
			put(t, s, tc.objects...)
			s.SetNodeReachability(tc.reachability, since)
			snapshot, _ := s.Commit(then.Time)
			got := healths(snapshot)
			maps.DeleteFunc(got, func(name, _ string) bool { return tc.want[name] == "" && name != "proxmox" })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for name, want := range tc.want {
				i := snapshot.Collection(inventory.TopicOperators).Find(name)
				lastSeen, _ := decode(t, i.List)["lastSeen"].(string)
				if want == "unreachable" && strings.HasPrefix(lastSeen, then.Format("2006-01-02T15:04:05")) {
					t.Errorf("%s: %s is %s and was last seen at the last write of an object, %s", tc.reason, name, want, lastSeen)
				}
				if want != "healthy" && i.Readiness.Message == "" {
					t.Errorf("%s: %s is %s without a message", tc.reason, name, want)
				}
			}
		})
	}
}

// TestMistakesChangeNoHealth writes every reason of a requester's mistake, as well as of a wait, into objects of all layers. No
// operator and no server of a backend is anything but healthy.
func TestMistakesChangeNoHealth(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	p := pve("a", v1alpha1.ProviderReady)
	put(t, s, dhcp(), p, reports("1", map[string]backend.Health{"kea.primary": "healthy", "netbox": "healthy", "proxmox.a": "healthy"}))
	for n, reason := range []string{
		"PoolExhausted", "DuplicateMACAddress", "AddressTaken", "KubernetesVersionUnknown", "TemplateNotFound", "InvalidTopology", "ImageNotFound",
		"NetworkNamespaceNotFound", "MachineProviderNotFound", "NameTaken", "KeaRefused", "SourceRejected", "EtcdLost", "KeysLost",
	} {
		name := fmt.Sprintf("m%d", n)
		m := machine(name, "1", "Failed")
		m.Status.Conditions = ready(metav1.ConditionFalse, reason, "")
		c := cluster("1")
		c.Name, c.UID = name, types.UID(name)
		c.Status.Phase, c.Status.Conditions = v1alpha1.ClusterFailed, ready(metav1.ConditionFalse, reason, "")
		nn := dhcp()
		nn.Name, nn.UID = name, types.UID(name)
		nn.Status.ProvisioningPhase, nn.Status.Conditions = v1alpha2.ProvisioningError, ready(metav1.ConditionFalse, reason, "")
		nc := reservation("nc-"+name, reason)
		nc.Status.Phase = v1alpha1.NetworkConfigurationError
		a := &v1alpha2.IPAllocation{ObjectMeta: about("team-a", "a-"+name, "1")}
		a.Status.Phase, a.Status.Conditions = v1alpha2.IPAllocationError, ready(metav1.ConditionFalse, reason, "")
		put(t, s, m, c, nn, nc, a)
	}
	snapshot, _ := s.Commit(then.Time)
	if diff := cmp.Diff(map[string]string{"proxmox": "healthy", "kea": "healthy", "talos": "healthy"}, healths(snapshot)); diff != "" {
		t.Errorf("a mistake of a requester changes the health of a backend (-want +got):\n%s", diff)
	}
	for _, i := range snapshot.Collection(inventory.TopicOperators).Items {
		resources := decode(t, i.List)["resources"].(map[string]any)
		if resources["failed"] != 0.0 {
			t.Errorf("%s has %v resources that fail because of it", i.ID, resources["failed"])
		}
	}
	for _, server := range snapshot.Servers() {
		if server.Status != backend.Healthy {
			t.Errorf("%s is %s", server.Backend, server.Status)
		}
	}
}

// TestServers lists the servers of all backends once, and tells only what is new.
func TestServers(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	put(t, s, talosCluster("shop", "ClusterRunning", v1alpha1.MachineRunning)...)
	put(t, s, pve("a", v1alpha1.ProviderReady), reports("1", map[string]backend.Health{"netbox": "unreachable", "kea.primary": "healthy", "proxmox.a": "healthy", "proxmox.gone": "unreachable"}))
	snapshot, _ := s.Commit(then.Time)
	var got []string
	for _, server := range snapshot.Servers() {
		got = append(got, strings.TrimSuffix(server.Backend+"."+server.Name, ".")+" "+string(server.Status)+" "+server.Owner)
	}
	want := []string{"proxmox.a healthy platform team", "talos healthy platform team", "kea.primary healthy network team", "netbox unreachable network team"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if again, changes := s.Commit(then.Time); again != snapshot || changes != nil {
		t.Error("nothing has changed, and there is another snapshot")
	}
	if !strings.Contains(string(snapshot.Summary()), `"backend":"netbox"`) {
		t.Errorf("the summary lacks the servers: %s", snapshot.Summary())
	}
}

// TestHostsOfASilentProvider are neither ready nor schedulable, and have no figures of the past.
func TestHostsOfASilentProvider(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	put(t, s, pve("a", v1alpha1.ProviderReady), reports("1", map[string]backend.Health{"proxmox.a": "healthy"}))
	host := func() map[string]any {
		snapshot, _ := s.Commit(then.Time)
		return decode(t, snapshot.Collection(inventory.TopicHosts).Items[0].JSON)
	}
	for n, step := range []struct {
		reason, status string
		health         backend.Health
		schedulable    bool
	}{
		{"it answers", "running", backend.Healthy, true},
		{"the host was ready when the provider last answered", "unknown", backend.Unreachable, false},
		{"it answers again", "running", backend.Healthy, true},
	} {
		put(t, s, reports(fmt.Sprint(n+2), map[string]backend.Health{"proxmox.a": step.health}))
		if got := host(); got["status"] != step.status || got["schedulable"] != step.schedulable {
			t.Errorf("%s: got %v, schedulable %v", step.reason, got["status"], got["schedulable"])
		}
	}
}

// TestReachIsQuiet makes no snapshot for what every round of probes repeats.
func TestReachIsQuiet(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	put(t, s, talosCluster("shop", "ClusterRunning", v1alpha1.MachineRunning)...)
	reachability := func(seconds int, r inventory.NodeReachability) *inventory.Snapshot {
		now := then.Add(time.Duration(seconds) * time.Second)
		if r.Answering > 0 {
			r.LastSeen = now
		}
		s.SetNodeReachability(map[string]inventory.NodeReachability{"uid-shop": r}, now)
		snapshot, _ := s.Commit(now)
		return snapshot
	}
	first := reachability(0, inventory.NodeReachability{Answering: 2})
	if reachability(10, inventory.NodeReachability{Answering: 2}) != first || reachability(50, inventory.NodeReachability{Answering: 2}) != first {
		t.Error("an answer is news within a minute")
	}
	if reachability(60, inventory.NodeReachability{Answering: 2}) == first {
		t.Error("the last answer is not known to the minute")
	}
	down := reachability(90, inventory.NodeReachability{Silent: 2, LastSeen: then.Add(70 * time.Second)})
	if i := down.Collection(inventory.TopicOperators).Find("talos"); i.Status != "unreachable" || !i.Readiness.Since.Equal(then.Add(90*time.Second)) {
		t.Errorf("got %s since %s", i.Status, i.Readiness.Since)
	}
	if reachability(100, inventory.NodeReachability{Silent: 2, LastSeen: then.Add(70 * time.Second)}) != down {
		t.Error("the same silence is news")
	}
}
