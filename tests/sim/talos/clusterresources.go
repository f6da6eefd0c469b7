package talos

import (
	"net/netip"
	"strings"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	clusterres "github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"
	etcdres "github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// clusterResources returns the cluster resources of a configured machine.
func (b *boot) clusterResources(f facts) []resource.Resource {
	n := b.node
	machineType := configres.NewMachineType()
	machineType.SetMachineType(n.role())
	all := []resource.Resource{
		configres.NewMachineConfigWithID(n.config, configres.ActiveID),
		configres.NewMachineConfigWithID(n.persisted(), configres.PersistentID),
		machineType,
	}
	identity := clusterres.NewIdentity(clusterres.NamespaceName, clusterres.LocalIdentity)
	identity.TypedSpec().NodeID = shortID(n.Machine.ID)
	info := clusterres.NewInfo()
	info.TypedSpec().ClusterID, info.TypedSpec().ClusterName = n.config.Cluster().ID(), n.config.Cluster().Name()
	all = append(all, identity, info)
	c := n.cluster()
	if c == nil {
		return all
	}
	if n.config.Cluster().Discovery().Enabled() {
		all = append(all, discovered(c.members())...)
	}
	all = append(all, b.kubernetesResources(f, c)...)
	if m, ok := c.memberOf(n); ok && b.etcd == etcdUp {
		member := etcdres.NewMember(etcdres.NamespaceName, etcdres.LocalMemberID)
		member.TypedSpec().MemberID = etcdres.FormatMemberID(m.ID)
		all = append(all, member)
	}
	return all
}

// discovered returns the machines of the cluster that discovery finds.
func discovered(members []*node) []resource.Resource {
	var all []resource.Resource
	for _, m := range members {
		if m.boot == nil || !m.boot.network.address.IsValid() {
			continue
		}
		network := m.boot.network
		addresses := append([]netip.Addr{network.address.Addr()}, m.boot.vips...)
		var plane *clusterres.ControlPlane
		if m.controlPlane() {
			plane = &clusterres.ControlPlane{APIServerPort: m.config.Cluster().LocalAPIServerPort()}
		}
		system := "Talos (" + m.Release.Version + ")"
		member := clusterres.NewMember(clusterres.NamespaceName, m.boot.nodename())
		*member.TypedSpec() = clusterres.MemberSpec{
			NodeID: shortID(m.Machine.ID), Addresses: addresses, Hostname: network.fqdn(), MachineType: m.role(),
			OperatingSystem: system, ControlPlane: plane,
		}
		affiliate := clusterres.NewAffiliate(clusterres.NamespaceName, shortID(m.Machine.ID))
		*affiliate.TypedSpec() = clusterres.AffiliateSpec{
			NodeID: shortID(m.Machine.ID), Addresses: addresses, Hostname: network.fqdn(), Nodename: m.boot.nodename(),
			OperatingSystem: system, MachineType: m.role(), ControlPlane: plane,
		}
		all = append(all, member, affiliate)
	}
	return all
}

func (b *boot) kubernetesResources(f facts, c *cluster) []resource.Resource {
	n := b.node
	name := b.nodename()
	nodename := k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)
	nodename.TypedSpec().Nodename = name
	nodename.TypedSpec().SkipNodeRegistration = n.config.Machine().Kubelet().SkipNodeRegistration()
	kubelet := k8s.NewKubeletSpec(k8s.NamespaceName, k8s.KubeletID)
	kubelet.TypedSpec().Image = n.config.Machine().Kubelet().Image()
	kubelet.TypedSpec().ExpectedNodename = name
	kubelet.TypedSpec().Config = map[string]any{}
	ip := k8s.NewNodeIP(k8s.NamespaceName, k8s.KubeletID)
	ip.TypedSpec().Addresses = []netip.Addr{b.network.address.Addr()}
	all := []resource.Resource{nodename, kubelet, ip}
	if node, ok := c.workload.Node(name); ok && b.joined == name {
		all = append(all, nodeStatus(node))
	}
	if n.role() == machine.TypeWorker {
		return all
	}
	all = append(all, b.controlPlaneResources()...)
	for _, pod := range f.staticPods {
		all = append(all, staticPodStatus(pod, name, f.podsReady >= len(f.staticPods)))
	}
	return all
}

func nodeStatus(node *corev1.Node) resource.Resource {
	status := k8s.NewNodeStatus(k8s.NamespaceName, node.Name)
	*status.TypedSpec() = k8s.NodeStatusSpec{
		Nodename: node.Name, NodeReady: workload.NodeReady(node), Unschedulable: node.Spec.Unschedulable,
		Labels: node.Labels, Annotations: node.Annotations,
	}
	return status
}

func staticPodStatus(pod, node string, ready bool) resource.Resource {
	state := "False"
	if ready {
		state = "True"
	}
	status := k8s.NewStaticPodStatus(k8s.NamespaceName, "kube-system/"+pod+"-"+node)
	status.TypedSpec().PodStatus = map[string]any{
		"phase":      string(corev1.PodRunning),
		"conditions": []any{map[string]any{"type": string(corev1.PodReady), "status": state}},
	}
	return status
}

func (b *boot) controlPlaneResources() []resource.Resource {
	cfg := b.node.config.Cluster()
	server := k8s.NewAPIServerConfig()
	server.TypedSpec().Image = cfg.APIServer().Image()
	server.TypedSpec().ControlPlaneEndpoint = cfg.Endpoint().String()
	server.TypedSpec().LocalPort = cfg.LocalAPIServerPort()
	manager := k8s.NewControllerManagerConfig()
	manager.TypedSpec().Enabled = !b.node.config.Machine().Controlplane().ControllerManager().Disabled()
	manager.TypedSpec().Image = cfg.ControllerManager().Image()
	scheduler := k8s.NewSchedulerConfig()
	scheduler.TypedSpec().Enabled = !b.node.config.Machine().Controlplane().Scheduler().Disabled()
	scheduler.TypedSpec().Image = cfg.Scheduler().Image()
	manifests := k8s.NewBootstrapManifestsConfig()
	spec := manifests.TypedSpec()
	spec.Server, spec.ClusterDomain = cfg.Endpoint().String(), cfg.Network().DNSDomain()
	spec.ProxyEnabled, spec.ProxyImage = cfg.Proxy().Enabled(), cfg.Proxy().Image()
	spec.CoreDNSEnabled, spec.CoreDNSImage = cfg.CoreDNS().Enabled(), b.node.coreDNS()
	spec.CNIName, spec.FlannelEnabled = cfg.Network().CNI().Name(), cfg.Network().CNI().Name() == constants.FlannelCNI
	spec.PodCIDRs = strings.Fields(strings.Join(cfg.Network().PodCIDRs(), " "))
	all := append(manifestResources(b.node.config), server, manager, scheduler, manifests)
	annotations := map[string]any{}
	for name, version := range staticPodAnnotations(b.renderings) {
		annotations[name] = version
	}
	for name, image := range staticPods(b.node.config) {
		pod := k8s.NewStaticPod(k8s.NamespaceName, name)
		pod.TypedSpec().Pod = map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"metadata": map[string]any{"name": name, "namespace": "kube-system", "annotations": annotations},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": name, "image": image}}},
		}
		all = append(all, pod)
	}
	return all
}
