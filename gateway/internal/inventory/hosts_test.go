package inventory_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

func kubevirtNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: about("", name, "1")}
	n.Labels = map[string]string{"kubevirt.io/schedulable": "true"}
	return n
}

func TestHostsAreListedOnce(t *testing.T) {
	t.Parallel()
	local := provider(v1alpha1.ProviderKubeVirt, v1alpha1.ProviderReady)
	local.Status.Nodes = []v1alpha1.ProviderNode{{Name: "host-1", Ready: true}, {Name: "host-2", Ready: true}}
	remote := local.DeepCopy()
	remote.Name, remote.UID = "far", "far"
	remote.Spec.CredentialsRef = &v1alpha1.SecretReference{Name: "far", Namespace: "vitistack-system"}
	pve := provider(v1alpha1.ProviderProxmox, v1alpha1.ProviderReady)
	pve.Status.Nodes = []v1alpha1.ProviderNode{{Name: "host-1", Ready: true}}
	usual := provider(v1alpha1.ProviderKubeVirt, v1alpha1.ProviderReady)
	usual.Name, usual.UID, usual.Spec.Default = "usual", "usual", true
	plain := &corev1.Node{ObjectMeta: about("", "host-1", "2")}
	cases := map[string]struct {
		reason  string
		objects []any
		want    []string
	}{
		"Provider": {reason: "without nodes, the provider is all that tells of hosts", objects: []any{local}, want: []string{"host-1 of kv", "host-2 of kv"}},
		"Both":     {reason: "a node stands for what its provider tells of it", objects: []any{local, kubevirtNode("host-1")}, want: []string{"host-1 of kv here", "host-2 of kv"}},
		"Order":    {reason: "in whatever order they come", objects: []any{kubevirtNode("host-1"), local}, want: []string{"host-1 of kv here", "host-2 of kv"}},
		"Node":     {reason: "KubeVirt may serve others than the stack", objects: []any{kubevirtNode("host-1")}, want: []string{"host-1 of  here"}},
		"Plain":    {reason: "a node that KubeVirt is not on is no host", objects: []any{pve, plain}, want: []string{"host-1 of kv"}},
		"Left":     {reason: "KubeVirt has been taken off the node", objects: []any{local, kubevirtNode("host-1"), plain}, want: []string{"host-1 of kv", "host-2 of kv"}},
		"Remote":   {reason: "a node of another cluster may have the same name", objects: []any{remote, kubevirtNode("host-1")}, want: []string{"host-1 of  here", "host-1 of far", "host-2 of far"}},
		"Proxmox":  {reason: "and so may one of Proxmox VE", objects: []any{pve, kubevirtNode("host-1")}, want: []string{"host-1 of  here", "host-1 of kv"}},
		"Default":  {reason: "the default of two providers has the nodes", objects: []any{local, usual, kubevirtNode("host-1")}, want: []string{"host-1 of usual here", "host-2 of kv"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := inventory.NewStore("e")
			var snapshot *inventory.Snapshot
			for _, o := range tc.objects {
				put(t, s, o)
				snapshot, _ = s.Commit(then.Time)
			}
			got := []string{}
			for _, i := range snapshot.Collection(inventory.TopicHosts).Items {
				host := i.Name + " of " + i.Attribute("provider")
				if decode(t, i.JSON)["local"] == true {
					host += " here"
				}
				got = append(got, host)
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHostsTellWhatTheyUse(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	p := provider(v1alpha1.ProviderKubeVirt, v1alpha1.ProviderReady)
	measured := v1alpha1.ProviderNode{Name: "host-1", Ready: true, CPUUsed: new(resource.MustParse("1500m")), MemoryUsed: new(resource.MustParse("3Gi"))}
	p.Status.Nodes = []v1alpha1.ProviderNode{measured, {Name: "host-2", Ready: true}}
	used := func(item string) [2]any {
		snapshot, _ := s.Commit(then.Time)
		host := decode(t, snapshot.Collection(inventory.TopicHosts).Find(item).JSON)
		return [2]any{host["milliCpus"].(map[string]any)["used"], host["memoryBytes"].(map[string]any)["used"]}
	}
	put(t, s, p)
	if got := used("kv.host-1"); got != [2]any{1500.0, float64(3 << 30)} {
		t.Errorf("the provider's host uses %v", got)
	}
	if got := used("kv.host-2"); got != [2]any{} {
		t.Errorf("the values are not measured: %v", got)
	}
	put(t, s, kubevirtNode("host-1"))
	if got := used("host-1"); got != [2]any{1500.0, float64(3 << 30)} {
		t.Errorf("its node uses %v", got)
	}
	p = p.DeepCopy()
	p.ResourceVersion, p.Status.Nodes[0].CPUUsed = "2", new(resource.MustParse("9"))
	put(t, s, p)
	if got := used("host-1"); got != [2]any{9000.0, float64(3 << 30)} {
		t.Errorf("its node uses %v after it has been measured again", got)
	}
}

// read is an object as the gateway reads it from its JSON.
func read[T any](t *testing.T, object any, into *T) *T {
	t.Helper()
	encoded, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(encoded, into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return into
}

func TestHostsCarryTheirLoad(t *testing.T) {
	t.Parallel()
	s := inventory.NewStore("e")
	node := kubevirtNode("host-1")
	node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi")}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: about("team-a", "m", "1")}
	vm.Status.PrintableStatus = kubevirtv1.VirtualMachineStatusRunning
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: about("team-a", "m", "1")}
	vmi.Spec.Domain.CPU = &kubevirtv1.CPU{Cores: 2, Sockets: 2}
	guest := resource.MustParse("4Gi")
	vmi.Spec.Domain.Memory = &kubevirtv1.Memory{Guest: &guest}
	vmi.Status.NodeName = "host-1"
	put(t, s, node, read(t, vm, &inventory.VirtualMachine{}), read(t, vmi, &inventory.VirtualMachineInstance{}))
	snapshot, _ := s.Commit(then.Time)
	got := decode(t, snapshot.Collection(inventory.TopicHosts).Find("host-1").JSON)
	if got["vms"] != 1.0 || got["milliCpus"].(map[string]any)["requested"] != 4000.0 || got["memoryBytes"].(map[string]any)["requested"] != float64(4<<30) {
		t.Errorf("host: %v", got)
	}
	s.Remove(inventory.KindVMI, inventory.Key{Namespace: "team-a", Name: "m"})
	snapshot, _ = s.Commit(then.Time)
	if got := decode(t, snapshot.Collection(inventory.TopicHosts).Find("host-1").JSON); got["vms"] != 0.0 {
		t.Errorf("the machine has left, but its host still has %v", got["vms"])
	}
}
