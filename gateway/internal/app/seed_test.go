package app

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/tests/fakeapi"
)

// seed fills an API server with a data centre that has some of everything, as it
// would be at a time: clusters of all sizes, and things that are stuck.
type seed struct {
	t   testing.TB
	api *fakeapi.Server
	now time.Time
}

func (s *seed) at(ago time.Duration) metav1.Time { return metav1.NewTime(s.now.Add(-ago)) }

func (s *seed) meta(namespace, name string, ago time.Duration) metav1.ObjectMeta {
	m := meta(namespace, name)
	m.CreationTimestamp = s.at(ago)
	return m
}

// ready is the condition Ready, with a reason where it is not true.
func (s *seed) ready(ago time.Duration, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: s.at(ago)}
	if reason != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, message
	}
	return c
}

func vitistack(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "vitistack.io/" + version, Kind: kind}
}

func (s *seed) network(namespace string, third int, reason, message string) {
	n := &v1alpha2.NetworkNamespace{TypeMeta: vitistack("v1alpha2", "NetworkNamespace"), ObjectMeta: s.meta(namespace, namespace+"-net", 50*time.Hour)}
	n.Spec.DatacenterIdentifier = "no-west-az1"
	n.Spec.NetworkProvisioning = &v1alpha2.NetworkProvisioning{Provider: v1alpha2.ProviderNetBox}
	n.Spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &v1alpha2.StaticPool{
		IPv4RangeStart: v1alpha2.IPv4Address(fmt.Sprintf("10.20.%d.10", third)), IPv4RangeEnd: v1alpha2.IPv4Address(fmt.Sprintf("10.20.%d.240", third)),
		ExcludedAddresses: []string{fmt.Sprintf("10.20.%d.100-10.20.%d.119", third, third)},
	}}
	n.Status.ProvisioningPhase = v1alpha2.ProvisioningReady
	n.Status.Conditions = []metav1.Condition{s.ready(50*time.Hour-3*time.Second, reason, message)}
	if reason == "" {
		n.Status.IPv4Prefix, n.Status.IPv4Gateway = fmt.Sprintf("10.20.%d.0/24", third), fmt.Sprintf("10.20.%d.1", third)
		n.Status.VLANID = int32(100 + third)
		n.Status.IPAllocationSummary = &v1alpha2.IPAllocationSummary{TotalCount: 210, AllocatedCount: 12 * int64(third%9), AvailableCount: 210 - 12*int64(third%9)}
	} else {
		n.Status.ProvisioningPhase = v1alpha2.ProvisioningError
	}
	s.api.Put(s.t, "networknamespaces", n)
}

// machine is one with its addresses, as a cluster's or by itself. A reason keeps it
// from being ready.
func (s *seed) machine(namespace, cluster, name, pool, address, host string, age time.Duration, reason, message string) {
	m := &v1alpha1.Machine{TypeMeta: vitistack("v1alpha1", "Machine"), ObjectMeta: s.meta(namespace, name, age)}
	m.Spec.Template = "large"
	m.Labels = map[string]string{}
	if cluster != "" {
		m.Labels[v1alpha1.LabelClusterName], m.Labels[v1alpha1.LabelClusterRole] = cluster, v1alpha1.RoleWorker
		m.Labels[v1alpha1.LabelWorkerGroup] = pool
		if pool == "" {
			m.Labels[v1alpha1.LabelClusterRole] = v1alpha1.RoleControlPlane
		}
	}
	m.Status.Provider = "kubevirt"
	if host != "" && host[:3] == "pve" {
		m.Status.Provider = "proxmox"
	}
	m.Status.Phase = v1alpha1.MachinePending
	m.Status.Conditions = []metav1.Condition{s.ready(age-4*time.Second, reason, message)}
	nc := &v1alpha1.NetworkConfiguration{TypeMeta: vitistack("v1alpha1", "NetworkConfiguration"), ObjectMeta: s.meta(namespace, name, age-200*time.Millisecond)}
	nc.UID = "nc-" + nc.UID
	nc.Labels = map[string]string{v1alpha1.LabelMachine: name}
	nc.Spec.NetworkNamespaceName = namespace + "-net"
	nc.Status.Phase = v1alpha1.NetworkConfigurationReady
	nc.Status.Conditions = []metav1.Condition{s.ready(age-time.Second, "", "")}
	if address == "" {
		nc.Status.Phase = v1alpha1.NetworkConfigurationPending
		nc.Status.Conditions = []metav1.Condition{s.ready(age-time.Second, "PoolExhausted", "all 210 addresses of "+namespace+"-net are held: release one, or enlarge the pool")}
	} else {
		nc.Status.NetworkInterfaces = []v1alpha1.InterfaceStatus{{Name: "eth0", MACAddress: "02:00:00:00:00:01", IPv4Addresses: []string{address}, IPAllocated: true, AllocationMethod: "static"}}
		a := &v1alpha2.IPAllocation{TypeMeta: vitistack("v1alpha2", "IPAllocation"), ObjectMeta: s.meta(namespace, name+"-eth0", age-300*time.Millisecond)}
		a.Spec = v1alpha2.IPAllocationSpec{NetworkNamespaceName: namespace + "-net", NetworkConfigurationName: name, InterfaceName: "eth0", IPFamily: v1alpha2.IPv4}
		a.Status.Address, a.Status.Phase = address, v1alpha2.IPAllocationAllocated
		a.Status.Conditions = []metav1.Condition{s.ready(age-time.Second, "", "")}
		s.api.Put(s.t, "ipallocations", a)
		m.Status.IPAddresses = []string{address}
	}
	if reason == "" {
		m.Status.Phase, m.Status.NodeName, m.Status.VMName = v1alpha1.MachineRunning, host, name
	}
	s.api.Put(s.t, "networkconfigurations", nc)
	s.api.Put(s.t, "machines", m)
	if host != "" && host[:3] != "pve" {
		s.vm(namespace, name, cluster, host)
	}
}

func (s *seed) vm(namespace, name, cluster, host string) {
	domain := kubevirtv1.DomainSpec{CPU: &kubevirtv1.CPU{Cores: 4}, Memory: &kubevirtv1.Memory{Guest: new(quantity.MustParse("8Gi"))}}
	vm := &kubevirtv1.VirtualMachine{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"}, ObjectMeta: s.meta(namespace, name, time.Hour)}
	vm.UID = "vm-" + vm.UID
	vm.Labels = map[string]string{v1alpha1.LabelMachine: name, v1alpha1.LabelClusterName: cluster}
	vm.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{Spec: kubevirtv1.VirtualMachineInstanceSpec{Domain: domain}}
	vm.Status.PrintableStatus = kubevirtv1.VirtualMachineStatusRunning
	vm.Status.Conditions = []kubevirtv1.VirtualMachineCondition{{Type: kubevirtv1.VirtualMachineReady, Status: corev1.ConditionTrue}}
	s.api.Put(s.t, "virtualmachines", vm)
	vmi := &kubevirtv1.VirtualMachineInstance{TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance"}, ObjectMeta: s.meta(namespace, name, time.Hour)}
	vmi.UID = "vmi-" + vmi.UID
	vmi.Spec.Domain, vmi.Status.NodeName, vmi.Status.Phase = domain, host, kubevirtv1.Running
	s.api.Put(s.t, "virtualmachineinstances", vmi)
}

func (s *seed) cluster(namespace, name string, age, took time.Duration, workers int32, reason, message string) {
	c := &v1alpha1.KubernetesCluster{TypeMeta: vitistack("v1alpha1", "KubernetesCluster"), ObjectMeta: s.meta(namespace, name, age)}
	c.Spec.Data = v1alpha1.ClusterData{Provider: "talos", Environment: "prod", Datacenter: "trd1", Region: "west", Zone: "az1", Project: "shop"}
	c.Spec.Topology.Version = "1.33"
	c.Spec.Topology.ControlPlane.Replicas = 3
	c.Spec.Topology.Workers = []v1alpha1.WorkerPool{{Name: "workers", Replicas: workers}}
	c.Status.Phase, c.Status.TalosVersion, c.Status.Version = v1alpha1.ClusterRunning, "v1.11.2", "v1.33.4"
	c.Status.ControlPlaneReady, c.Status.WorkersReady = "3/3", fmt.Sprintf("%d/%d", workers, workers)
	c.Status.Endpoint = "https://10.20.1.10:6443"
	done := func(kind string, part int) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Done", LastTransitionTime: s.at(age - took*time.Duration(part)/6)}
	}
	c.Status.Conditions = []metav1.Condition{done("TopologyValid", 0), done("MachinesCreated", 1), done("MachinesRunning", 3), done("ConfigApplied", 4), done("Bootstrapped", 5)}
	if reason != "" {
		c.Status.Phase = v1alpha1.ClusterProvisioning
		if reason == "InvalidTopology" {
			c.Status.Phase = v1alpha1.ClusterPending
		}
		c.Status.Conditions = c.Status.Conditions[:2]
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: "MachinesRunning", Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: s.at(age)})
	} else {
		c.Status.Conditions = append(c.Status.Conditions, done("NodesReady", 6))
		for i := range 3 {
			c.Status.Nodes = append(c.Status.Nodes, v1alpha1.NodeStatus{Name: fmt.Sprintf("%s-cp-%d", name, i), Role: "control-plane", State: "Ready", Version: "v1.33.4"})
		}
		for i := range workers {
			c.Status.Nodes = append(c.Status.Nodes, v1alpha1.NodeStatus{Name: fmt.Sprintf("%s-workers-%d", name, i), Role: "worker", State: "Ready", Version: "v1.33.4"})
		}
	}
	c.Status.Conditions = append(c.Status.Conditions, s.ready(age-took, reason, message))
	s.api.Put(s.t, "kubernetesclusters", c)
}

// hosts are KubeVirt's nodes and a Proxmox VE cluster.
func (s *seed) hosts() {
	for _, p := range []struct {
		name string
		kind v1alpha1.ProviderType
	}{{"kubevirt", v1alpha1.ProviderKubeVirt}, {"proxmox", v1alpha1.ProviderProxmox}} {
		o := &v1alpha1.MachineProvider{TypeMeta: vitistack("v1alpha1", "MachineProvider"), ObjectMeta: s.meta("", p.name, 400*time.Hour)}
		o.Spec.Type, o.Spec.Default = p.kind, p.name == "kubevirt"
		o.Status.Phase, o.Status.Version, o.Status.MachineCount = v1alpha1.ProviderReady, "v1.6.0", 40
		o.Status.Conditions = []metav1.Condition{s.ready(300*time.Hour, "", "")}
		for i := range 8 {
			if p.kind == v1alpha1.ProviderKubeVirt {
				o.Status.Nodes = append(o.Status.Nodes, v1alpha1.ProviderNode{Name: hostName(i), Ready: true, CPU: quantity.MustParse("31"), Memory: quantity.MustParse("120Gi")})
			}
		}
		for i := range 3 {
			if p.kind == v1alpha1.ProviderProxmox {
				o.Status.Version = "9.0.3"
				o.Status.Nodes = append(o.Status.Nodes, v1alpha1.ProviderNode{
					Name: fmt.Sprintf("pve%d", i), Ready: i != 2, CPU: quantity.MustParse("32"), Memory: quantity.MustParse("256Gi"),
					CPUUsed: new(quantity.MustParse("3500m")), MemoryUsed: new(quantity.MustParse("240Gi")),
				})
			}
		}
		s.api.Put(s.t, "machineproviders", o)
	}
	for i := range 8 {
		n := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: s.meta("", hostName(i), 900*time.Hour)}
		n.Labels = map[string]string{"kubevirt.io/schedulable": "true"}
		n.Status.NodeInfo.KubeletVersion = "v1.33.4"
		n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("32"), corev1.ResourceMemory: quantity.MustParse("128Gi")}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("31"), corev1.ResourceMemory: quantity.MustParse("120Gi")}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: s.at(90 * time.Hour)}}
		s.api.Put(s.t, "nodes", n)
	}
}

func hostName(i int) string { return fmt.Sprintf("hypervisor-%02d", i) }

// busy is a data centre of 12 clusters, in which some things are stuck.
func busy(t testing.TB, api *fakeapi.Server) {
	t.Helper()
	api.Serve("virtualmachines", "virtualmachineinstances")
	s := &seed{t: t, api: api, now: time.Now()}
	s.hosts()
	n := 0
	for i, name := range []string{"shop", "billing", "search", "media", "analytics", "edge-oslo", "edge-bergen", "identity", "mail", "labs", "archive", "maps"} {
		namespace := "team-" + string(rune('a'+i/2))
		workers := 2 + i%3
		if name == "analytics" {
			workers = 40
		}
		if i%2 == 0 {
			s.network(namespace, i/2+1, "", "")
		}
		age := time.Duration(i+1) * 3 * time.Hour
		reason, message := "", ""
		switch name {
		case "labs":
			age, reason, message = 11*time.Minute, "WaitingForMachines", "waiting for 2 of 3 machines, the first is labs-cp-1: PoolExhausted"
		case "archive":
			age, reason, message = 26*time.Minute, "InvalidTopology", "spec.topology.version 1.19 is too old: write 1.30 or newer"
		case "maps":
			age, reason, message = 20*time.Second, "WaitingForMachines", "waiting for 3 of 5 machines, the first is maps-cp-2: Starting"
		}
		s.cluster(namespace, name, age, 42*time.Second, int32(workers), reason, message)
		if name == "archive" {
			continue
		}
		for j := range 3 + workers {
			n++
			machine, pool := fmt.Sprintf("%s-cp-%d", name, j), ""
			if j >= 3 {
				machine, pool = fmt.Sprintf("%s-workers-%d", name, j-3), "workers"
			}
			address, host := fmt.Sprintf("10.20.%d.%d", i/2+1, 20+i%2*100+j), hostName(n%8)
			switch {
			case name == "labs" && j > 0:
				s.machine(namespace, name, machine, pool, "", "", age-time.Second, "WaitingForAddress", "waiting for an address of "+machine)
			case name == "maps" && j > 1:
				s.machine(namespace, name, machine, pool, address, "", age-time.Second, "Starting", "waiting for the virtual machine to start")
			case name == "analytics" && j%17 == 5:
				s.machine(namespace, name, machine, pool, address, "", age-time.Second, "InsufficientResources", "no hypervisor node has 8 GiB left")
			default:
				s.machine(namespace, name, machine, pool, address, host, age-time.Second, "", "")
			}
		}
	}
	s.network("team-z", 90, "SourceUnavailable", "NetBox does not answer: connect: connection refused")
	for i := range 6 {
		s.machine("team-a", "", fmt.Sprintf("db-%d", i), "", fmt.Sprintf("10.20.1.%d", 200+i), fmt.Sprintf("pve%d", i%2), 200*time.Hour, "", "")
	}
	reserved := &v1alpha2.IPAllocation{TypeMeta: vitistack("v1alpha2", "IPAllocation"), ObjectMeta: s.meta("team-a", "printer", 400*time.Hour)}
	reserved.Spec = v1alpha2.IPAllocationSpec{NetworkNamespaceName: "team-a-net", RequestedAddress: "10.20.1.77"}
	reserved.Status.Address, reserved.Status.Phase = "10.20.1.77", v1alpha2.IPAllocationAllocated
	reserved.Status.Conditions = []metav1.Condition{s.ready(time.Hour, "", "")}
	api.Put(t, "ipallocations", reserved)
	cm := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta("team-a", "shop-manifests")}
	cm.Labels = map[string]string{v1alpha1.LabelClusterName: "shop", v1alpha1.LabelManagedBy: "bootstrap-talos"}
	cm.Data = map[string]string{"shop-cp-0.machine.yaml": "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata:\n  name: shop-cp-0\n"}
	api.Put(t, "configmaps", cm)
}
