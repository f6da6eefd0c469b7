package talos

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// stepKubelets lets every node join that has not done so in this boot. A kubelet restarts after a
// change of its node's authorities. It is silent while it and an API server do not trust each other,
// because its connections may lead to any of them.
func (c *cluster) stepKubelets() {
	for _, n := range c.working() {
		b := n.boot
		b.pullKubelet()
		if !b.kubeletSince.IsZero() && b.agent.Name != "" {
			c.workload.Leave(b.agent.Name)
			b.joined, b.agent = "", workload.Kubelet{}
		}
	}
	if !c.online() {
		return
	}
	for _, n := range c.working() {
		b := n.boot
		k := b.kubelet()
		if trusted := strings.Join(kubernetesCAs(n.config), " "); b.joined != "" && (trusted != b.trusted || !c.trusts(n)) {
			c.workload.Leave(b.joined)
			b.joined = ""
		}
		if b.joined != "" && !maps.Equal(k.StaticPodAnnotations, b.agent.StaticPodAnnotations) {
			if err := c.workload.RestartStaticPods(k); err != nil {
				b.fail("restart the static pods", err)
			}
			b.agent.StaticPodAnnotations = k.StaticPodAnnotations
		}
		if b.joined != "" || !b.kubeletSince.IsZero() || n.config.Machine().Kubelet().SkipNodeRegistration() || !c.certifyKubelet(n) {
			continue
		}
		k.PodCIDR = c.podCIDR()
		if err := c.workload.Join(k); err != nil {
			b.fail("register the node", err)
			continue
		}
		b.joined, b.agent = k.Name, k
		if err := c.workload.Uncordon(k.Name); err != nil {
			b.fail("uncordon the node", err)
		}
	}
}

// pullKubelet pulls the image of the kubelet, which Talos does before it starts the service. It reports whether the
// static pods of the node run: they also do so without the kubelet that has started them.
func (b *boot) pullKubelet() bool {
	switch {
	case isPublished(b.node.config.Machine().Kubelet().Image()):
		b.kubeletSince, b.kubeletRuns = time.Time{}, true
	case b.kubeletSince.IsZero():
		b.kubeletSince = time.Now()
	}
	return b.kubeletRuns
}

// certifyKubelet plays a kubelet's start: Talos removes a client certificate whose authority the node
// does not accept, and a kubelet without one requests another. It reports whether the kubelet and the
// API servers trust each other.
func (c *cluster) certifyKubelet(n *node) bool {
	trusted := kubernetesCAs(n.config)
	n.boot.trusted = strings.Join(trusted, " ")
	if !slices.Contains(trusted, string(n.KubeletCA)) {
		n.KubeletCA = nil
	}
	if n.KubeletCA == nil && c.serversTrustedBy(n) {
		for _, server := range c.controlPlanes() {
			if server.boot.kubernetes != nil {
				n.KubeletCA = server.config.Cluster().IssuingCA().Crt
				break
			}
		}
		n.mustSave()
	}
	return c.trusts(n)
}

// trusts reports whether the kubelet of a node and every API server trust each other.
func (c *cluster) trusts(n *node) bool {
	return c.serversTrustedBy(n) && !slices.ContainsFunc(c.controlPlanes(), func(server *node) bool {
		return server.boot.kubernetes != nil && !slices.Contains(kubernetesCAs(server.config), string(n.KubeletCA))
	})
}

// serversTrustedBy reports whether the kubelet of a node trusts every API server.
func (c *cluster) serversTrustedBy(n *node) bool {
	trusted := kubernetesCAs(n.config)
	return !slices.ContainsFunc(c.controlPlanes(), func(server *node) bool {
		return server.boot.kubernetes != nil && !slices.Contains(trusted, string(server.config.Cluster().IssuingCA().Crt))
	})
}

func (b *boot) nodename() string {
	if b.node.config != nil && b.node.config.Machine().Kubelet().RegisterWithFQDN() {
		return b.network.fqdn()
	}
	return b.network.hostname
}

// kubelet returns the description of the machine for its cluster.
func (b *boot) kubelet() workload.Kubelet {
	n := b.node
	m, k := n.config.Machine(), n.config.Cluster()
	agent := workload.Kubelet{
		Name: b.nodename(), Address: b.network.address.Addr().String(),
		ControlPlane: n.controlPlane(), Schedulable: k.ScheduleOnControlPlanes(),
		Labels: m.NodeLabels(), Annotations: m.NodeAnnotations(), Taints: taints(m.NodeTaints()),
		Version: imageTag(m.Kubelet().Image()), OSImage: "Talos (" + n.Release.Version + ")",
		WithoutCNI: k.Network().CNI().Name() == constants.NoneCNI,
		Kernel:     kernelVersion + "-talos", Runtime: "containerd://" + containerdVersion,
		MachineID: strings.ReplaceAll(n.Machine.ID, "-", ""), SystemUUID: n.Machine.ID, BootID: b.id,
		CPUs: n.Machine.cpus(), Memory: n.Machine.memory(),
	}
	if n.controlPlane() {
		agent.StaticPods = staticPods(n.config)
		agent.StaticPodAnnotations = staticPodAnnotations(b.running)
	}
	return agent
}

// podCIDR returns how the controller manager of the cluster divides the prefix of pods, with the defaults of Kubernetes.
func (c *cluster) podCIDR() (p workload.PodCIDR) {
	planes := c.controlPlanes()
	if len(planes) == 0 {
		return p
	}
	k := planes[0].config.Cluster()
	for _, cidr := range k.Network().PodCIDRs() {
		p.Cluster, _ = netip.ParsePrefix(cidr)
		break
	}
	family := "ipv4"
	p.NodeBits = 24
	if p.Cluster.Addr().Is6() {
		family, p.NodeBits = "ipv6", 64
	}
	for _, flag := range []string{"node-cidr-mask-size", "node-cidr-mask-size-" + family} {
		for _, value := range k.ControllerManager().ExtraArgs()[flag] {
			p.NodeBits, _ = strconv.Atoi(value)
		}
	}
	return p
}

// staticPods returns the components of the control plane and their images.
func staticPods(cfg config.Provider) map[string]string {
	pods := map[string]string{"kube-apiserver": cfg.Cluster().APIServer().Image()}
	if !cfg.Machine().Controlplane().ControllerManager().Disabled() {
		pods["kube-controller-manager"] = cfg.Cluster().ControllerManager().Image()
	}
	if !cfg.Machine().Controlplane().Scheduler().Disabled() {
		pods["kube-scheduler"] = cfg.Cluster().Scheduler().Image()
	}
	return pods
}

// staticPodAnnotations returns the annotations by which Talos tells the renderings of a pod apart.
func staticPodAnnotations(rendering int) map[string]string {
	version := strconv.Itoa(rendering)
	return map[string]string{
		constants.AnnotationStaticPodConfigVersion:     version,
		constants.AnnotationStaticPodConfigFileVersion: version,
		constants.AnnotationStaticPodSecretsVersion:    version,
	}
}

// taints parses "value:Effect" or "Effect", the form in the configuration.
func taints(configured map[string]string) []corev1.Taint {
	var found []corev1.Taint
	for _, key := range slices.Sorted(maps.Keys(configured)) {
		spec := configured[key]
		value, effect, both := strings.Cut(spec, ":")
		if !both {
			value, effect = "", spec
		}
		found = append(found, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return found
}

func seedOf(n *node) workload.Seed {
	var seed workload.Seed
	k := n.config.Cluster()
	if k.Proxy().Enabled() {
		seed.ProxyImage = k.Proxy().Image()
	}
	if k.Network().CNI().Name() == constants.FlannelCNI {
		seed.FlannelImage = "ghcr.io/siderolabs/flannel:" + constants.FlannelVersion
	}
	if k.CoreDNS().Enabled() {
		seed.DNSImage = n.coreDNS()
	}
	return seed
}
