package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/engine"
)

// TestResizeInPlace resizes a pool and then a control plane on each hypervisor, with rollout.type InPlace. Each virtual machine
// keeps its identity, disks, address and Node, and starts once more, with more cores. At most one node is away at all times.
func TestResizeInPlace(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--config", "RESYNC_PERIOD=3s", "--config", "NODE_PROBE_INTERVAL=1s")
	d := &dayTwo{Engine: e, t: t}
	var sites []*site
	for i, hypervisor := range []string{"kubevirt", "proxmox"} {
		first, last := 10+100*i, 100+100*i
		e.Apply(hypervisor, strings.Replace(e.StaticNetwork("network", first, last), "vlanId: 100", fmt.Sprintf("vlanId: %d", 100+i), 1))
		s := &site{dayTwo: d, hypervisor: hypervisor, cluster: "on-" + hypervisor, first: first, last: last, shape: shape{
			version: "1.33", controlSize: "small", workerSize: "small", controls: 3, workers: 2, rollout: "InPlace",
		}}
		s.shape.maxUnavailable = 1
		s.create()
		sites = append(sites, s)
	}
	starts := watchInstances(t, sites[0])
	before := make([]map[string]string, len(sites))
	for i, s := range sites {
		s.awaitShape()
		s.observer = observe(t, s)
		before[i] = s.identities()
	}
	steps := []dayTwoStep{
		{name: "Pool", change: func(s *shape) { s.workerSize = "medium" }, away: 1, kept: true},
		{name: "ControlPlane", change: func(s *shape) { s.controlSize = "medium" }, kept: true},
	}
	for _, step := range steps {
		for _, s := range sites {
			s.begin(step)
		}
		for _, s := range sites {
			s.end(step)
		}
	}
	for i, s := range sites {
		for name, identity := range s.identities() {
			if identity != before[i][name] {
				t.Errorf("Machine %s was %s, and is %s", name, before[i][name], identity)
			}
			n := starts.count(name)
			if s.hypervisor == "proxmox" {
				n = s.countStarts(name)
			}
			if n != 2 {
				t.Errorf("Machine %s has started %d times, want once when it was created and once with its new size", name, n)
			}
		}
	}
}

// identities returns what each machine keeps, by name: its virtual machine with its disks, its address and its Node.
func (s *site) identities() map[string]string {
	s.t.Helper()
	vms, err := s.vms(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	disks := map[string][]string{}
	for _, v := range vms {
		disks[v.uid] = v.disks
	}
	nodes, err := s.nodes(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	nodeUIDs := map[string]string{}
	for _, n := range nodes {
		nodeUIDs[n.Name] = string(n.UID)
	}
	found := map[string]string{}
	for _, m := range s.machines("") {
		id := ""
		if s.hypervisor == "kubevirt" {
			id = string(s.Get(engine.VirtualMachines, s.hypervisor, m.name).GetUID())
		} else {
			id = strconv.Itoa(s.vmidOf(m.name))
		}
		found[m.name] = fmt.Sprintf("virtual machine %s of Machine %s with the disks %v, the address %s and the Node %s", id, m.uid, disks[m.uid], m.address, nodeUIDs[m.name])
	}
	return found
}

// vmidOf returns the VMID of a Machine.
func (s *site) vmidOf(name string) int {
	s.t.Helper()
	id, _, _ := unstructured.NestedString(s.Get(engine.Machines, s.hypervisor, name).Object, "status", "providerID")
	vmid, err := strconv.Atoi(id[strings.LastIndex(id, "/")+1:])
	if err != nil {
		s.t.Fatalf("Machine %s has the provider ID %q", name, id)
	}
	return vmid
}

// countStarts returns how often Proxmox VE has started the virtual machine of a Machine.
func (s *site) countStarts(name string) (n int) {
	s.t.Helper()
	var state struct {
		Tasks []struct{ Kind, ID, Exit string }
	}
	if err := s.readState(&state, "proxmox.json"); err != nil {
		s.t.Fatal(err)
	}
	vmid := strconv.Itoa(s.vmidOf(name))
	for _, task := range state.Tasks {
		if task.Kind == "qmstart" && task.ID == vmid {
			n++
		}
	}
	return n
}

// instances has the UIDs of the VirtualMachineInstances that were seen, by the names of the Machines.
type instances struct {
	mu   sync.Mutex
	uids map[string]map[string]bool
}

// watchInstances watches the instances of KubeVirt until t ends.
func watchInstances(t *testing.T, s *site) *instances {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	seen := &instances{uids: map[string]map[string]bool{}}
	var watching sync.WaitGroup
	t.Cleanup(func() { cancel(); watching.Wait() })
	watching.Go(func() {
		for ctx.Err() == nil {
			if list, err := s.Client.Resource(engine.Instances).Namespace(s.hypervisor).List(ctx, metav1.ListOptions{}); err == nil {
				seen.add(list)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	return seen
}

func (i *instances) add(list *unstructured.UnstructuredList) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, o := range list.Items {
		if i.uids[o.GetName()] == nil {
			i.uids[o.GetName()] = map[string]bool{}
		}
		i.uids[o.GetName()][string(o.GetUID())] = true
	}
}

func (i *instances) count(name string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.uids[name])
}
