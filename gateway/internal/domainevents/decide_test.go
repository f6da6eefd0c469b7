package domainevents

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

func machineItem(phase string) *inventory.Item {
	return &inventory.Item{
		ID: "u", Phase: phase, Created: time.Unix(0, 0).UTC(),
		Object: &inventory.Object{ResourceVersion: "7", Labels: map[string]string{"a": "b"}, Facts: &inventory.Machine{Phase: phase, Cluster: "shop", Addresses: []string{"10.0.0.5"}}},
	}
}

func clusterItem(phase, spec string) *inventory.Item {
	return &inventory.Item{ID: "u", Phase: phase, Object: &inventory.Object{ResourceVersion: "7", Spec: json.RawMessage(spec), Facts: &inventory.Cluster{}}}
}

func addressItem(interfaces ...inventory.Interface) *inventory.Item {
	return &inventory.Item{ID: "u", Object: &inventory.Object{ResourceVersion: "7", Facts: &inventory.Address{Network: "net", Interfaces: interfaces}}}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	object := events.Object{UID: "u", Namespace: "team-a", Name: "n"}
	complete := inventory.Interface{Name: "eth0", MAC: "02:00", Addresses: []string{"10.0.0.5"}, Ready: true}
	created := draft{events.TypeMachineCreated, "created", events.MachineCreated{
		Object: object, Cluster: "shop", IPAddresses: []string{"10.0.0.5"}, CreatedAt: time.Unix(0, 0).UTC(),
	}}
	cases := map[string]struct {
		reason  string
		kind    inventory.Kind
		now     *inventory.Item
		known   string
		old     bool
		changed bool
		forget  bool
		want    []draft
	}{
		"Unknown":          {reason: "nothing is known, before and now", kind: inventory.KindMachine},
		"MachineWaits":     {reason: "a machine that does not run yet is only stored", kind: inventory.KindMachine, now: machineItem("Pending"), changed: true},
		"MachineRuns":      {reason: "the first run of a machine is an event", kind: inventory.KindMachine, now: machineItem("Running"), known: `{"created":false}`, changed: true, want: []draft{created}},
		"MachineFound":     {reason: "a machine that was created while the gateway was down is an event", kind: inventory.KindMachine, now: machineItem("Running"), changed: true, want: []draft{created}},
		"MachineOld":       {reason: "a machine that is older than the history is no event", kind: inventory.KindMachine, now: machineItem("Running"), old: true, changed: true},
		"MachineOldRuns":   {reason: "the first run of an older machine is an event", kind: inventory.KindMachine, now: machineItem("Running"), old: true, known: `{"created":false}`, changed: true, want: []draft{created}},
		"MachineSame":      {reason: "an unchanged machine is no event", kind: inventory.KindMachine, now: machineItem("Running"), known: `{"created":true,"cluster":"shop","labels":{"a":"b"}}`},
		"MachineRestarts":  {reason: "a second run is no event", kind: inventory.KindMachine, now: machineItem("Running"), known: `{"created":true,"cluster":"shop"}`, changed: true},
		"MachineGone":      {reason: "the deletion is an event with the last known values", kind: inventory.KindMachine, known: `{"created":true,"cluster":"shop","labels":{"a":"b"}}`, changed: true, forget: true, want: []draft{{events.TypeMachineDeleted, "deleted", events.MachineDeleted{Object: object, Cluster: "shop", Labels: map[string]string{"a": "b"}}}}},
		"MachineNeverRan":  {reason: "the deletion of a machine that never ran is no event", kind: inventory.KindMachine, known: `{"created":false}`, changed: true, forget: true},
		"ClusterNew":       {reason: "a new cluster is an event with its spec", kind: inventory.KindCluster, now: clusterItem("Pending", `{"v":1}`), changed: true, want: []draft{{events.TypeClusterUpdated, "updated.7", events.ClusterUpdated{Object: object, Changes: []events.Change{{Path: "/phase", To: "Pending"}, {Path: "/spec", To: map[string]any{"v": json.Number("1")}}}}}}},
		"ClusterScaled":    {reason: "a change is recorded by its innermost field", kind: inventory.KindCluster, now: clusterItem("Running", `{"workers":[{"replicas":3}]}`), known: `{"phase":"Running","spec":{"workers":[{"replicas":2}]}}`, changed: true, want: []draft{{events.TypeClusterUpdated, "updated.7", events.ClusterUpdated{Object: object, Changes: []events.Change{{Path: "/spec/workers/0/replicas", From: json.Number("2"), To: json.Number("3")}}}}}},
		"ClusterSame":      {reason: "another order of fields is no change", kind: inventory.KindCluster, now: clusterItem("Running", `{"a":1,"b":2}`), known: `{"spec":{"b":2,"a":1},"phase":"Running"}`},
		"ClusterOld":       {reason: "a cluster that is older than the history is no event", kind: inventory.KindCluster, now: clusterItem("Running", `{}`), old: true, changed: true},
		"ClusterGone":      {reason: "the deletion is an event", kind: inventory.KindCluster, known: `{"phase":"Deleting","spec":{}}`, changed: true, forget: true, want: []draft{{events.TypeClusterUpdated, "deleted", events.ClusterUpdated{Object: object, Changes: []events.Change{{Path: "/phase", From: "Deleting"}, {Path: "/spec", From: map[string]any{}}}}}}},
		"AddressWaits":     {reason: "an interface without an address is not configured", kind: inventory.KindConfiguration, now: addressItem(complete, inventory.Interface{Name: "eth1"}), changed: true},
		"AddressComplete":  {reason: "an interface is configured with its last address", kind: inventory.KindConfiguration, now: addressItem(complete), known: `{"interfaces":null}`, changed: true, want: []draft{{events.TypeNetworkConfigured, "configured.7", events.NetworkConfigured{Object: object, NetworkNamespace: "net", Interfaces: []events.NetworkInterface{{Name: "eth0", MACAddress: "02:00", Addresses: []string{"10.0.0.5"}}}}}}},
		"AddressSame":      {reason: "the configuration is recorded once", kind: inventory.KindConfiguration, now: addressItem(complete), known: `{"interfaces":[{"name":"eth0","macAddress":"02:00","addresses":["10.0.0.5"]}]}`},
		"AddressForAWhile": {reason: "a missing address is no new configuration", kind: inventory.KindConfiguration, now: addressItem(inventory.Interface{Name: "eth0"}), known: `{"interfaces":[{"name":"eth0","macAddress":"02:00","addresses":["10.0.0.5"]}]}`},
		"AddressGone":      {reason: "a deleted interface is removed", kind: inventory.KindConfiguration, known: `{"interfaces":null}`, changed: true, forget: true},
		"ClusterLater":     {reason: "the version is no change of the cluster", kind: inventory.KindCluster, now: clusterItem("Running", `{"v":2}`), known: `{"resourceVersion":"6","phase":"Running","spec":{"v":2}}`},
		"ClusterGoneLater": {reason: "the version is no change of the deleted cluster", kind: inventory.KindCluster, known: `{"resourceVersion":"10","phase":"Deleting","spec":{}}`, changed: true, forget: true, want: []draft{{events.TypeClusterUpdated, "deleted", events.ClusterUpdated{Object: object, Changes: []events.Change{{Path: "/phase", From: "Deleting"}, {Path: "/spec", From: map[string]any{}}}}}}},
		"OtherKinds":       {reason: "other kinds have no events", kind: inventory.KindNetwork, now: machineItem("Running")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := observed{id: "u", now: tc.now, isOld: tc.old, namespace: "team-a", name: "n"}
			if tc.known != "" {
				o.known = json.RawMessage(tc.known)
			}
			v, err := decide(tc.kind, o)
			if err != nil {
				t.Fatal(err)
			}
			if v.changed != tc.changed || (v.changed && (v.document == nil) != tc.forget) {
				t.Errorf("%s: changed %v, document %v", tc.reason, v.changed, v.document)
			}
			if diff := cmp.Diff(tc.want, v.events, cmp.AllowUnexported(draft{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if v.document == nil || !v.changed {
				return
			}
			document, err := json.Marshal(v.document)
			if err != nil {
				t.Fatal(err)
			}
			o.known = document
			if again, err := decide(tc.kind, o); err != nil || again.changed {
				t.Errorf("%s: a second call finds a change again: %+v %v", tc.reason, again, err)
			}
		})
	}
}

func TestDecideOperator(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, known, now string
		changed            bool
		events             int
	}{
		"First":     {reason: "a healthy operator at first is no event", now: "healthy", changed: true},
		"FirstSick": {reason: "an unhealthy operator at first is an event", now: "unreachable", changed: true, events: 1},
		"Same":      {reason: "no change", known: "degraded", now: "degraded"},
		"Worse":     {reason: "the status gets worse", known: "healthy", now: "degraded", changed: true, events: 1},
		"Better":    {reason: "the status gets better", known: "degraded", now: "healthy", changed: true, events: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var known json.RawMessage
			if tc.known != "" {
				known = json.RawMessage(`{"status":"` + tc.known + `"}`)
			}
			v, err := decideOperator(&inventory.Item{ID: "kea", Status: tc.now}, known, time.UnixMilli(5))
			if err != nil || v.changed != tc.changed || len(v.events) != tc.events {
				t.Fatalf("%s: %+v %v", tc.reason, v, err)
			}
			if tc.events == 1 && (v.events[0].suffix != tc.now+".5" || v.events[0].data.(events.OperatorStatus).Previous != tc.known) {
				t.Errorf("%s: %+v", tc.reason, v.events[0])
			}
		})
	}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, from, to string
		want             []events.Change
	}{
		"Equal":   {reason: "nothing", from: `{"a":[1,null,{"b":true}]}`, to: `{"a":[1,null,{"b":true}]}`, want: []events.Change{}},
		"Type":    {reason: "another type is another value", from: `{"a":1}`, to: `{"a":"1"}`, want: []events.Change{{Path: "/a", From: json.Number("1"), To: "1"}}},
		"Null":    {reason: "null is a value", from: `{"a":null}`, to: `{"a":1}`, want: []events.Change{{Path: "/a", To: json.Number("1")}}},
		"Longer":  {reason: "a list that grows", from: `{"a":[1]}`, to: `{"a":[1,2]}`, want: []events.Change{{Path: "/a/1", To: json.Number("2")}}},
		"Shorter": {reason: "a list that shrinks", from: `{"a":[1,2]}`, to: `{"a":[1]}`, want: []events.Change{{Path: "/a/1", From: json.Number("2")}}},
		"Escapes": {reason: "names with a slash or a tilde", from: `{"a/b~c":1}`, to: `{"a/b~c":2}`, want: []events.Change{{Path: "/a~1b~0c", From: json.Number("1"), To: json.Number("2")}}},
		"Sorted":  {reason: "paths are sorted", from: `{"c":1,"a":1}`, to: `{"b":1}`, want: []events.Change{{Path: "/a", From: json.Number("1")}, {Path: "/b", To: json.Number("1")}, {Path: "/c", From: json.Number("1")}}},
		"Large":   {reason: "large numbers are exact", from: `{"a":9007199254740993}`, to: `{"a":9007199254740992}`, want: []events.Change{{Path: "/a", From: json.Number("9007199254740993"), To: json.Number("9007199254740992")}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := difference(json.RawMessage(tc.from), json.RawMessage(tc.to))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func FuzzDifference(f *testing.F) {
	f.Add(`{"a":1}`, `{"a":[1]}`)
	f.Add(`{"a":{"b":[]}}`, `{"a":{"b":{}}}`)
	f.Add(`null`, `{}`)
	f.Fuzz(func(t *testing.T, from, to string) {
		changes, err := difference(json.RawMessage(from), json.RawMessage(to))
		if err != nil {
			return
		}
		same, err := difference(json.RawMessage(from), json.RawMessage(from))
		if err != nil || len(same) != 0 {
			t.Errorf("%s differs from itself: %v %v", from, same, err)
		}
		back, err := difference(json.RawMessage(to), json.RawMessage(from))
		if err != nil || len(back) != len(changes) {
			t.Errorf("%s and %s differ by %d fields one way and %d the other", from, to, len(changes), len(back))
		}
	})
}
