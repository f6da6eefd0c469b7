package adopt

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestDecideMachine(t *testing.T) {
	t.Parallel()
	const machine = `{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {namespace: a, name: web, uid: own}, spec: {networks: [{name: eth0, networkName: web}]}}`
	for _, tc := range []struct {
		because, machine, vm string
		unmarked             bool
		action, note, patch  string
	}{
		{"the stack made it", machine, `{metadata: {name: web, annotations: {vitistack.io/uid: own}}}`, false, Adopted, "", ""},
		{"it was orphaned, or restored", machine, `{metadata: {name: web, annotations: {vitistack.io/uid: gone}}}`, false, Adopts, "does not exist any more", `"vitistack.io/former-uids":"gone"`},
		{"it moved before", strings.Replace(machine, "uid: own", "uid: own, annotations: {vitistack.io/former-uids: first}", 1), `{metadata: {name: web, annotations: {vitistack.io/uid: gone}}}`, false, Adopts, "", `"vitistack.io/former-uids":"first,gone"`},
		{"another Machine has it", machine, `{metadata: {name: web, annotations: {vitistack.io/uid: other}}}`, true, Decision, "belongs to Machine b/web", ""},
		{"the owner is another Machine", machine, `{metadata: {name: web, ownerReferences: [{kind: Machine, name: web, uid: other}]}}`, true, Decision, "belongs to Machine b/web", ""},
		{"the kubevirt-operator made it", machine, `{metadata: {name: web, labels: {vitistack.io/managed-by: kubevirt-operator}, ownerReferences: [{kind: Machine, name: web, uid: own}]}}`, false, Adopts, "the kubevirt-operator made it", `"vitistack.io/reconcile"`},
		{"a stranger made it", machine, `{metadata: {name: web}}`, false, Decision, "--unmarked", ""},
		{"an administrator says that it is the Machine's", machine, `{metadata: {name: web}}`, true, Adopts, "no mark", `"vitistack.io/former-uids":"unmarked"`},
		{"its MAC address is kept", machine, `{metadata: {name: web}, spec: {template: {spec: {domain: {devices: {interfaces: [{name: eth0, macAddress: "52:54:00:00:00:01"}]}}}}}}`, true, Adopts, "gets MAC address 52:54:00:00:00:01", `"macAddress":"52:54:00:00:00:01"`},
		{"the Machine has another MAC address", strings.Replace(machine, "networkName: web", `networkName: web, macAddress: "52:54:00:00:00:09"`, 1), `{metadata: {name: web}, spec: {template: {spec: {domain: {devices: {interfaces: [{name: eth0, macAddress: "52:54:00:00:00:01"}]}}}}}}`, true, Decision, "write the same into both", ""},
		{"the operator has written its kind into the status, with which the API server refuses other networks", strings.TrimSuffix(machine, "}") + `, status: {provider: kubevirt}}`, `{metadata: {name: web}, spec: {template: {spec: {domain: {devices: {interfaces: [{name: eth1, macAddress: "52:54:00:00:00:01"}]}}}}}}`, true, Decision, "after the command has run without --dry-run", ""},
		{"the Machine lacks the interface", machine, `{metadata: {name: web}, spec: {template: {spec: {domain: {devices: {interfaces: [{name: eth1, macAddress: "52:54:00:00:00:01"}]}}}}}}`, true, Decision, "add it to spec.networks", ""},
	} {
		r := decideMachine(parse(t, tc.machine), parse(t, tc.vm), map[string]string{"own": "a/web", "other": "b/web"}, tc.unmarked)
		patch, err := json.Marshal(r.Patch)
		if err != nil || r.Action != tc.action || !strings.Contains(r.Note, tc.note) || !strings.Contains(string(patch), tc.patch) || (tc.action == Adopts) != (r.Patch != nil) {
			t.Errorf("%s: got %s, %q, %s, %v", tc.because, r.Action, r.Note, patch, err)
		}
	}
}

func TestDecideProxmox(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		because, machine string
		unmarked, ok     bool
		action           string
	}{
		{"the proxmox-operator made it", `{metadata: {name: web}, status: {providerID: proxmox://pve1/100}}`, true, true, Adopts},
		{"an administrator has to allow it", `{metadata: {name: web}, status: {providerID: proxmox://pve1/100}}`, false, true, Decision},
		{"create-vm has it already", `{metadata: {name: web, annotations: {vitistack.io/provisioned-by: pve}}, status: {providerID: proxmox://pve1/100}}`, true, false, ""},
		{"it is at another hypervisor", `{metadata: {name: web}, status: {providerID: kubevirt://k/a/web}}`, true, false, ""},
	} {
		if r, ok := decideProxmox(parse(t, tc.machine), tc.unmarked); ok != tc.ok || r.Action != tc.action || (tc.action == Adopts) != (r.Patch != nil) {
			t.Errorf("%s: got %t, %+v", tc.because, ok, r)
		}
	}
}

func TestDecideNetwork(t *testing.T) {
	t.Parallel()
	const static = `{kind: NetworkConfiguration, metadata: {namespace: a, name: web}, spec: {networkInterfaces: [{name: eth0, macAddress: "52:54:00:00:00:01"}]}, status: {networkInterfaces: [{name: eth0, ipv4Addresses: [10.0.0.5], allocationMethod: static}]}}`
	dhcp := strings.Replace(static, "method: static", "method: dhcp", 1)
	dhcp = strings.Replace(dhcp, "allocationMethod: static", "allocationMethod: dhcp", 1)
	for _, tc := range []struct {
		because, nc         string
		allocated, unmarked bool
		ok                  bool
		action, patch       string
	}{
		{"the static-ip-operator has allocated it", static, false, false, true, Adopts, `"ipv4Addresses":["10.0.0.5"]`},
		{"it has an IPAllocation", static, true, false, false, "", ""},
		{"kea-reserve has reserved it", strings.Replace(dhcp, "name: web", "name: web, finalizers: [vitistack.io/networkconfiguration-finalizer]", 1), false, true, false, "", ""},
		{"a reservation has no mark", dhcp, false, false, true, Decision, ""},
		{"an administrator allows to adopt it", dhcp, false, true, true, Adopts, `"vitistack.io/former-uids":"unmarked"`},
		{"the spec lacks the interface", strings.Replace(static, "[{name: eth0, mac", "[{name: eth7, mac", 1), false, true, true, Decision, ""},
		{"it has no address", `{metadata: {name: web}, status: {networkInterfaces: [{name: eth0}]}}`, false, true, false, "", ""},
	} {
		r, ok := decideNetwork(parse(t, tc.nc), tc.allocated, tc.unmarked)
		patch, err := json.Marshal(r.Patch)
		if err != nil || ok != tc.ok || ok && (r.Action != tc.action || !strings.Contains(string(patch), tc.patch)) {
			t.Errorf("%s: got %t, %s, %q, %s, %v", tc.because, ok, r.Action, r.Note, patch, err)
		}
	}
}
