package kea

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const sample = `{
	"valid-lifetime": 600, "big": 18446744073709551615, "control-socket": {"socket-name": "/run/kea", "password": "s3cret"},
	"subnet4": [
		{"id": 1, "subnet": "10.77.0.0/24", "future": {"a": [1, 2.50]}, "reservations": [
			{"hw-address": "02:00:00:00:00:01", "ip-address": "10.77.0.9", "next-server": "10.0.0.1", "future": true},
			{"client-id": "01:02", "hostname": "x"}
		]},
		{"id": 2, "subnet": "10.78.0.0/24"}
	],
	"shared-networks": [{"name": "floor", "interface": "eth0", "subnet4": [
		{"id": 3, "subnet": "10.79.0.0/24", "user-context": {"vitistack.io/networknamespace-uid": "n1"}},
		{"id": 4, "subnet": "10.80.0.0/24", "user-context": {"vitistack.io/networknamespace-uid": "n2"}},
		{"id": 6, "subnet": "10.81.0.0/24", "user-context": {"vitistack.io/networknamespace-uid": "n3"}, "reservations": [{"client-id": "01:02"}]}
	]}]
}`

// plain decodes JSON for a comparison.
func plain(t *testing.T, raw json.RawMessage) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDocument(t *testing.T) {
	t.Parallel()
	d, err := ParseConfiguration(json.RawMessage(sample))
	if err != nil {
		t.Fatal(err)
	}
	same, err := d.apply(Change{}, "")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := same.encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain(t, json.RawMessage(sample)), plain(t, raw)); diff != "" {
		t.Errorf("an unchanged document (-want +got):\n%s", diff)
	}
	in := func(address string, subnet uint32) Reservation {
		return Reservation{
			Subnet: subnet, Client: Identifier{hwAddress, "52:54:00:00:00:0a"}, Address: netip.MustParseAddr(address),
			Routers: "10.77.0.1", DNS: "10.9.9.9", Owner: Owner{UID: "u1", Name: "ns/vm", Interface: "eth0", Network: "n1"},
		}
	}
	changed, err := d.apply(Change{
		Create: &SubnetSpec{Subnet: Subnet{ID: 5, Prefix: netip.MustParsePrefix("10.77.0.0/24")}, Classes: []string{"a"}, Network: "n1"},
		Add:    []Reservation{in("10.78.0.5", 2), in("10.77.0.5", 5)},
		Remove: []Reservation{{Subnet: 1, Client: Identifier{hwAddress, "02:00:00:00:00:01"}}},
	}, "classes-key")
	if err != nil {
		t.Fatal(err)
	}
	if raw, err = changed.encode(); err != nil {
		t.Fatal(err)
	}
	want := plain(t, json.RawMessage(sample)).(map[string]any)
	subnets := want["subnet4"].([]any)
	first, second := subnets[0].(map[string]any), subnets[1].(map[string]any)
	first["reservations"] = first["reservations"].([]any)[1:]
	made := plain(t, json.RawMessage(`{
		"hw-address": "52:54:00:00:00:0a", "ip-address": "10.78.0.5",
		"option-data": [{"name": "routers", "code": 3, "data": "10.77.0.1"}, {"name": "domain-name-servers", "code": 6, "data": "10.9.9.9"}],
		"user-context": {"vitistack.io/uid": "u1", "vitistack.io/networkconfiguration": "ns/vm", "vitistack.io/interface": "eth0", "vitistack.io/networknamespace-uid": "n1"}
	}`)).(map[string]any)
	other := map[string]any{}
	for key, value := range made {
		other[key] = value
	}
	other["ip-address"] = "10.77.0.5"
	second["reservations"] = []any{made}
	want["subnet4"] = append(subnets, map[string]any{
		"id": 5.0, "subnet": "10.77.0.0/24", "match-client-id": false, "classes-key": []any{"a"}, "reservations": []any{other},
		"user-context": map[string]any{"vitistack.io/networknamespace-uid": "n1"},
	})
	if diff := cmp.Diff(want, plain(t, raw)); diff != "" {
		t.Errorf("a document after a change (-want +got):\n%s", diff)
	}
	if got := d.Reservations(); len(got) != 3 || len(changed.Reservations()) == 3 {
		t.Errorf("a change of a copy changed the original: %v", got)
	}
}

func TestDocumentWithout(t *testing.T) {
	t.Parallel()
	d, err := ParseConfiguration(json.RawMessage(sample))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason, network string
		keep            string
		want            []uint32
	}{
		"Made":     {"it is empty", "n1", "10.77.0.0/24", []uint32{3}},
		"Used":     {"it has a reservation of another owner", "n3", "10.77.0.0/24", nil},
		"Present":  {"it has the network's present prefix", "n1", "10.79.0.0/24", nil},
		"Within":   {"the network has a part of it", "n1", "10.79.0.128/25", nil},
		"NoSubnet": {"no subnet was created for the network", "n4", "10.77.0.0/24", nil},
		"Unknown":  {"the subnet was created without a network", "", "10.77.0.0/24", nil},
	} {
		if got := d.unusedSubnets([]string{tc.network, "n9"}, netip.MustParsePrefix(tc.keep)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %s: got %v", name, tc.reason, got)
		}
	}
	next, err := d.withoutSubnets(d.unusedSubnets([]string{"n2"}, netip.Prefix{}))
	if err != nil || len(next.Subnets()) != 4 || len(d.Subnets()) != 5 {
		t.Errorf("got %v, error %v", next, err)
	}
}

func TestDocumentMalformed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{``, `null`, `[]`, `{"subnet4":{}}`, `{"shared-networks":[1]}`, `{"shared-networks":[{"subnet4":1}]}`} {
		if _, err := ParseConfiguration(json.RawMessage(text)); err == nil {
			t.Errorf("%q is accepted as a configuration", text)
		}
	}
}
