package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

const (
	movedDHCPNetwork = `apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: leases}
spec:
  datacenterIdentifier: no-west-az1
  networkProvisioning: {provider: manual, manual: {ipv4CIDR: 127.64.%[1]d.0/24, ipv4Gateway: 127.64.%[1]d.1, vlanId: 1%[1]d}}
  ipAllocation: {type: dhcp}
`
	movedStaticNetwork = `apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: addresses}
spec:
  datacenterIdentifier: no-west-az1
  networkProvisioning: {provider: manual, manual: {ipv4CIDR: 127.64.30.0/24, ipv4Gateway: 127.64.30.1, vlanId: 130}}
  ipAllocation: {type: static}
`
	movedInto = "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: %[1]s}\nspec: {template: small, providerRef: {name: %[2]s}, networkNamespaceName: %[1]s}\n"
)

// proxmoxVM is a virtual machine in the state of the simulated Proxmox VE.
type proxmoxVM struct {
	ID      int
	Running bool
	Config  map[string]string
}

// reservation is a reservation in the configuration of Kea.
type reservation struct {
	MAC     string            `json:"hw-address"`
	Address string            `json:"ip-address"`
	Marks   map[string]string `json:"user-context"`
}

// backendState is what the backends of the first engine have.
type backendState struct {
	vms          map[string]proxmoxVM
	volumes      []string
	reservations map[string]reservation
	// subnets are the prefixes of Kea's subnets.
	subnets map[string]bool
}

// of returns the part of a namespace.
func (b backendState) of(namespace string) backendState {
	maps.DeleteFunc(b.vms, func(_ string, vm proxmoxVM) bool {
		return !strings.Contains(vm.Config["description"], "Machine "+namespace+"/")
	})
	maps.DeleteFunc(b.reservations, func(_ string, r reservation) bool {
		return !strings.HasPrefix(r.Marks["vitistack.io/networkconfiguration"], namespace+"/")
	})
	return b
}

// kept returns what must not change while a machine moves.
func (b backendState) kept() map[string]string {
	all := map[string]string{}
	for name, vm := range b.vms {
		all["virtual machine "+name] = fmt.Sprint(vm.ID, vm.Running, vm.Config["net0"])
	}
	for mac, r := range b.reservations {
		all["reservation "+mac] = r.Address
	}
	return all
}

// readBackends reads the state of Proxmox VE and of Kea for a namespace.
func readBackends(e *engine.Engine, namespace string) (b backendState, err error) {
	var proxmox struct {
		Machines []proxmoxVM
		Volumes  []struct {
			Key    struct{ Name string }
			Volume struct{ VMID int }
		}
	}
	var real, simulated any
	for file, into := range map[string]any{"proxmox.json": &proxmox, "kea/kea-dhcp4.conf": &real, "kea.json": &simulated} {
		text, err := os.ReadFile(filepath.Join(e.Dir, "sim", file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			return b, fmt.Errorf("read %s: %w", file, err)
		}
	}
	b.vms, b.reservations, b.subnets = map[string]proxmoxVM{}, map[string]reservation{}, map[string]bool{}
	for _, vm := range proxmox.Machines {
		b.vms[vm.Config["name"]] = vm
	}
	for _, v := range proxmox.Volumes {
		if v.Volume.VMID != 0 {
			b.volumes = append(b.volumes, v.Key.Name)
		}
	}
	err = errors.Join(b.addKea(real), b.addKea(simulated))
	return b.of(namespace), err
}

// addKea adds the reservations and subnets in a part of Kea's configuration.
func (b backendState) addKea(part any) error {
	switch part := part.(type) {
	case map[string]any:
		if prefix, ok := part["subnet"].(string); ok {
			b.subnets[prefix] = true
		}
		if _, ok := part["hw-address"]; ok {
			text, err := json.Marshal(part)
			var r reservation
			if err == nil {
				err = json.Unmarshal(text, &r)
			}
			b.reservations[r.MAC] = r
			return err
		}
		return b.addKea(slices.Collect(maps.Values(part)))
	case []any:
		for _, v := range part {
			if err := b.addKea(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// watchBackends compares what the backends have with what they had, every 200 ms until the returned function is called,
// which returns the first difference.
func watchBackends(e *engine.Engine, namespace string, want map[string]string) (end func() string) {
	stop, done := make(chan struct{}), make(chan string, 1)
	go func() {
		diff := ""
		for {
			select {
			case <-stop:
				done <- diff
				return
			case <-time.After(200 * time.Millisecond):
			}
			// A file that is being written cannot be read, and is read again.
			if b, err := readBackends(e, namespace); err == nil && diff == "" {
				diff = cmp.Diff(want, b.kept())
			}
		}
	}()
	return func() string { close(stop); return <-done }
}

// callsSince returns the calls of a simulator that changed something since before, each with its count.
func callsSince(t *testing.T, e *engine.Engine, simulator string, before map[string]int) map[string]int {
	t.Helper()
	calls, err := e.Calls(simulator)
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(calls, func(name string, n int) bool { return strings.HasPrefix(name, "GET ") || n == before[name] })
	for name := range calls {
		calls[name] -= before[name]
	}
	return calls
}

// moveProxmox moves two Machines on Proxmox VE, one with a reservation of Kea and one with an address of allocate-ip: the
// backends keep their virtual machines and reservations, which get the marks of the new objects, and the second management cluster deletes each once.
func (p pair) moveProxmox(t *testing.T) {
	const namespace = "hypervisor"
	from, to := p.from, p.to
	from.Apply(namespace, movedStaticNetwork)
	from.Apply(namespace, fmt.Sprintf(movedDHCPNetwork, 31))
	names := []string{"addresses", "leases"}
	for _, name := range names {
		from.Apply(namespace, fmt.Sprintf(movedInto, name, "proxmox"))
	}
	for _, name := range names {
		from.UntilPhase(engine.Machines, namespace, name, "Running")
	}
	before := settledBackends(t, from, namespace, 2)
	status := statusOf(from, namespace)
	leases := len(from.List(engine.Leases, namespace, ""))
	calls, err := from.Calls("proxmox")
	if err != nil {
		t.Fatal(err)
	}
	end := watchBackends(from, namespace, before.kept())
	if out, ok := p.move(t, namespace); !ok {
		t.Fatalf("kubectl viti move: %s", out)
	}
	var after backendState
	feed.Until(t, "all marks are those of the new objects", func() (bool, string) {
		if after, err = readBackends(from, namespace); err != nil {
			return false, err.Error()
		}
		wrong := wrongMarks(to, namespace, after)
		return wrong == "", wrong
	})
	if diff := end(); diff != "" {
		t.Errorf("while the Machines moved (-before +meanwhile):\n%s", diff)
	}
	if diff := cmp.Diff(before.kept(), after.kept()); diff != "" {
		t.Errorf("after the move (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(status, statusOf(to, namespace)); diff != "" {
		t.Errorf("the status of the Machines (-before +after):\n%s", diff)
	}
	for call := range callsSince(t, from, "proxmox", calls) {
		if !strings.HasSuffix(call, "/config") {
			t.Errorf("Proxmox VE was asked to %s", call)
		}
	}
	if now := len(to.List(engine.Leases, namespace, "")); now != leases {
		t.Errorf("%d Leases have moved, want %d", now, leases)
	}
	for _, l := range from.List(engine.Leases, "", "vitistack.io/managed-by=create-vm") {
		t.Errorf("the first management cluster has Lease %s/%s of %v", l.GetNamespace(), l.GetName(), l.GetAnnotations())
	}
	p.deleteMoved(t, namespace, before, names)
}

// settledBackends returns the state of the backends once a namespace has a number of running virtual machines on Proxmox VE and a reservation.
func settledBackends(t *testing.T, e *engine.Engine, namespace string, vms int) (b backendState) {
	t.Helper()
	feed.Until(t, "the backends have what was created", func() (bool, string) {
		var err error
		b, err = readBackends(e, namespace)
		maps.DeleteFunc(b.vms, func(_ string, vm proxmoxVM) bool { return !vm.Running })
		return err == nil && len(b.vms) == vms && len(b.reservations) == 1, fmt.Sprint(b, err)
	})
	return b
}

// statusOf returns where the Machines of a namespace are, and their addresses.
func statusOf(e *engine.Engine, namespace string) map[string]string {
	all := map[string]string{}
	for _, m := range e.List(engine.Machines, namespace, "") {
		id, _, _ := unstructured.NestedString(m.Object, "status", "providerID")
		phase, _, _ := unstructured.NestedString(m.Object, "status", "phase")
		addresses, _, _ := unstructured.NestedStringSlice(m.Object, "status", "ipAddresses")
		all[m.GetName()] = fmt.Sprint(id, phase, addresses)
	}
	return all
}

// wrongMarks describes a virtual machine or reservation whose mark is not the UID of the object of its name.
func wrongMarks(e *engine.Engine, namespace string, b backendState) string {
	for name, vm := range b.vms {
		uid := string(e.Get(engine.Machines, namespace, name).GetUID())
		if tags := strings.Split(vm.Config["tags"], ";"); !slices.Contains(tags, "uid-"+uid) || !strings.Contains(vm.Config["description"], "uid: "+uid+"\n") {
			return fmt.Sprintf("virtual machine %s has the tags %v and the description %q, want UID %s", name, tags, vm.Config["description"], uid)
		}
	}
	for mac, r := range b.reservations {
		_, name, _ := strings.Cut(r.Marks["vitistack.io/networkconfiguration"], "/")
		uid, network := string(e.Get(engine.NetworkConfigurations, namespace, name).GetUID()), string(e.Get(engine.NetworkNamespaces, namespace, "leases").GetUID())
		if r.Marks["vitistack.io/uid"] != uid || r.Marks["vitistack.io/networknamespace-uid"] != network {
			return fmt.Sprintf("the reservation of %s has the marks %v, want UIDs %s and %s", mac, r.Marks, uid, network)
		}
	}
	return ""
}

// deleteMoved deletes the Machines at the second engine, and fails unless the backends delete each virtual machine once and nothing is left.
func (p pair) deleteMoved(t *testing.T, namespace string, before backendState, names []string) {
	t.Helper()
	calls, err := p.from.Calls("proxmox")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		p.to.Delete(engine.Machines, namespace, name)
		p.to.Delete(engine.NetworkNamespaces, namespace, name)
	}
	feed.Until(t, "the second management cluster deletes everything", func() (bool, string) {
		b, err := readBackends(p.from, namespace)
		var left []string
		for _, resource := range []schema.GroupVersionResource{engine.Machines, engine.NetworkConfigurations, engine.IPAllocations, engine.NetworkNamespaces, engine.Leases} {
			for _, o := range p.to.List(resource, namespace, "") {
				left = append(left, resource.Resource+" "+o.GetName())
			}
		}
		return err == nil && len(b.vms)+len(b.volumes)+len(b.reservations)+len(left) == 0 && !b.subnets["127.64.31.0/24"], fmt.Sprint(b, left, err)
	})
	deleted := callsSince(t, p.from, "proxmox", calls)
	for name, vm := range before.vms {
		n := 0
		for call, times := range deleted {
			if strings.HasPrefix(call, "DELETE ") && strings.HasSuffix(call, fmt.Sprintf("/qemu/%d", vm.ID)) {
				n += times
			}
		}
		if n != 1 {
			t.Errorf("virtual machine %s was deleted %d times: %v", name, n, deleted)
		}
	}
}

// moveNetworks moves a network of NAM and one of NetBox: each keeps its segment, and nothing is created or deleted until the second
// management cluster deletes it.
func (p pair) moveNetworks(t *testing.T) {
	p.from.Apply("", p.from.Example("tour-networks.yaml"))
	networks := map[string]string{"tour-nam": "automated", "tour-netbox": "documented"}
	status, calls := map[string]any{}, map[string]map[string]int{}
	for namespace, name := range networks {
		status[namespace] = segmentOf(p.from.UntilPhase(engine.NetworkNamespaces, namespace, name, "Ready"))
	}
	segments, objects := readSegments(t, p.from)
	for _, simulator := range []string{"nam", "netbox"} {
		var err error
		if calls[simulator], err = p.from.Calls(simulator); err != nil {
			t.Fatal(err)
		}
	}
	for namespace, name := range networks {
		if out, ok := p.move(t, namespace); !ok {
			t.Fatalf("kubectl viti move: %s", out)
		}
		if diff := cmp.Diff(status[namespace], segmentOf(p.to.UntilPhase(engine.NetworkNamespaces, namespace, name, "Ready"))); diff != "" {
			t.Errorf("the segment of %s (-before +after):\n%s", name, diff)
		}
	}
	segmentsNow, objectsNow := readSegments(t, p.from)
	if diff := cmp.Diff(segments, segmentsNow); diff != "" {
		t.Errorf("NAM keeps the segment with the first UID (-before +after):\n%s", diff)
	}
	uid := string(p.to.Get(engine.NetworkNamespaces, "tour-netbox", "documented").GetUID())
	if len(objects) == 0 || !maps.EqualFunc(objects, objectsNow, func(_, now string) bool { return now == uid }) {
		t.Errorf("NetBox has the marks %v, had %v, want UID %s", objectsNow, objects, uid)
	}
	for simulator := range calls {
		for call := range callsSince(t, p.from, simulator, calls[simulator]) {
			if strings.HasPrefix(call, "DELETE ") || simulator == "netbox" && strings.HasPrefix(call, "POST ") {
				t.Errorf("%s was asked to %s", simulator, call)
			}
		}
	}
	for namespace, name := range networks {
		p.to.Delete(engine.NetworkNamespaces, namespace, name)
	}
	feed.Until(t, "the second management cluster deletes both segments", func() (bool, string) {
		segments, objects := readSegments(t, p.from)
		left := len(p.to.List(engine.NetworkNamespaces, "tour-nam", "")) + len(p.to.List(engine.NetworkNamespaces, "tour-netbox", ""))
		return len(segments)+len(objects)+left == 0, fmt.Sprint(segments, objects, left)
	})
}

// segmentOf returns the segment in the status of a network.
func segmentOf(nn *unstructured.Unstructured) map[string]any {
	segment := map[string]any{}
	for _, field := range []string{"namespaceId", "ipv4Prefix", "ipv4Gateway", "ipv6Prefix", "vlanId"} {
		segment[field], _, _ = unstructured.NestedFieldNoCopy(nn.Object, "status", field)
	}
	return segment
}

// readSegments returns the IDs of the segments of NAM by their UIDs, and the UIDs of the objects of NetBox by their IDs.
func readSegments(t *testing.T, e *engine.Engine) (segments, objects map[string]string) {
	t.Helper()
	type object struct {
		Fields map[string]any `json:"custom_fields"`
	}
	var library struct{ Prefixes, VLANs, Addresses map[string]object }
	var manager map[string]struct {
		Segment struct{ ID string }
		GoneAt  time.Time
	}
	for file, into := range map[string]any{"nam.json": &manager, "netbox.json": &library} {
		text, err := os.ReadFile(filepath.Join(e.Dir, "sim", file))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	segments, objects = map[string]string{}, map[string]string{}
	for uid, s := range manager {
		if s.GoneAt.IsZero() || time.Now().Before(s.GoneAt) {
			segments[uid] = s.Segment.ID
		}
	}
	for kind, all := range map[string]map[string]object{"prefix": library.Prefixes, "VLAN": library.VLANs, "address": library.Addresses} {
		for id, o := range all {
			if uid, ok := o.Fields["vitistack_uid"].(string); ok && uid != "" {
				objects[kind+" "+id] = uid
			}
		}
	}
	return segments, objects
}
