package main

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// fault is something that the owner of a cluster has to change. Reason is one word
// for a condition, message says what to change.
type fault struct{ reason, message string }

func (f fault) Error() string { return f.reason + ": " + f.message }

// plan is what a cluster's spec comes to.
type plan struct {
	versions
	// groups are the control plane and the pools, members the machines that they
	// have, control planes first. While a group shrinks it has more members than
	// replicas.
	groups   []group
	members  []member
	endpoint v1alpha1.ControlPlaneEndpoint
	port     int32
}

// group is the control plane or a pool.
type group struct {
	pool, role string
	replicas   int
	// version is the Kubernetes version of its machines, without v.
	version    string
	properties v1alpha1.MachineProperties
}

// member is one machine of a cluster.
type member struct {
	name, role, pool string
	// version is the Kubernetes version of the machine, without v.
	version    string
	properties v1alpha1.MachineProperties
}

// Templates of machines whose pool names none. A control plane of the smallest
// size has no room for etcd beside the API server.
const (
	controlPlaneTemplate = "large"
	workerTemplate       = "medium"
	defaultPort          = int32(6443)
)

// controlPlanePool is what the names of control planes have in the place of a
// pool's.
const controlPlanePool = "cp"

// makePlan works out a cluster's machines and versions. machines are those that it
// has: who stays keeps its name. It returns a fault where the spec cannot be.
func makePlan(kc *v1alpha1.KubernetesCluster, machines map[string]*v1alpha1.Machine, talos string) (plan, error) {
	t := effective(kc.Spec.Topology)
	requested := ""
	if kc.Spec.Talos != nil {
		requested = kc.Spec.Talos.Version
	}
	if requested == "" {
		requested = kc.Status.TalosVersion
	}
	p := plan{endpoint: endpointOf(kc), port: defaultPort}
	if p.endpoint.Port != 0 {
		p.port = p.endpoint.Port
	}
	wanted := t.Version
	if t.ControlPlane.Version != "" {
		wanted = t.ControlPlane.Version
	}
	var err error
	if p.versions, err = resolveVersions(pinned(wanted, kc), requested, talos); err != nil {
		return plan{}, err
	}
	if t.ControlPlane.Replicas < 1 || t.ControlPlane.Replicas%2 == 0 {
		return plan{}, fault{"InvalidTopology", fmt.Sprintf("%d control planes cannot keep a majority: write 1, 3, 5 or 7 into topology.controlplane.replicas", t.ControlPlane.Replicas)}
	}
	p.add(kc, machines, group{controlPlanePool, v1alpha1.RoleControlPlane, int(t.ControlPlane.Replicas), p.kubernetes, t.ControlPlane.MachineProperties})
	for _, pool := range t.Workers {
		version := p.kubernetes
		if pool.Version != "" {
			if version, err = resolveKubernetes(pinned(pool.Version, kc), p.talos); err != nil {
				return plan{}, err
			}
		}
		p.add(kc, machines, group{pool.Name, v1alpha1.RoleWorker, int(pool.Replicas), version, pool.MachineProperties})
	}
	if err := p.check(); err != nil {
		return plan{}, err
	}
	return p, p.checkSkew(kc)
}

func (p *plan) add(kc *v1alpha1.KubernetesCluster, machines map[string]*v1alpha1.Machine, g group) {
	if g.properties.Template == "" {
		g.properties.Template = pick(g.role == v1alpha1.RoleControlPlane, controlPlaneTemplate, workerTemplate)
	}
	p.groups = append(p.groups, g)
	prefix := prefixOf(kc.Name, g.pool)
	for _, name := range seats(prefix, g.replicas, seatsOf(machines, g.pool, prefix, unknown), kc.Status.Adding) {
		p.members = append(p.members, member{name: name, role: g.role, pool: g.pool, version: g.version, properties: g.properties})
	}
}

// templates are the sizes that create-vm knows.
var templates = []string{"small", "medium", "large"}

func prefixOf(cluster, pool string) string { return cluster + "-" + pool + "-" }

func unknown(string) bool { return true }

// check refuses names that two machines would bear, or that are too long for a
// host.
func (p plan) check() error {
	const maxHost = 63
	for _, g := range p.groups {
		if !slices.Contains(templates, g.properties.Template) {
			return fault{"TemplateNotFound", fmt.Sprintf("pool %s: template %q does not exist: write %s", g.pool, g.properties.Template, strings.Join(templates, ", "))}
		}
	}
	seen := map[string]bool{}
	for _, m := range p.members {
		if len(m.name) > maxHost {
			return fault{"InvalidTopology", fmt.Sprintf("machine name %s has more than %d characters: shorten the name of the cluster or of pool %s", m.name, maxHost, m.pool)}
		}
		if seen[m.name] {
			return fault{"InvalidTopology", fmt.Sprintf("two machines would be called %s: rename pool %s", m.name, m.pool)}
		}
		seen[m.name] = true
	}
	return nil
}

// endpointOf is how the workload API is reached: as the spec says, or else by a
// virtual address where there is more than one control plane.
func endpointOf(kc *v1alpha1.KubernetesCluster) v1alpha1.ControlPlaneEndpoint {
	switch {
	case kc.Spec.ControlPlaneEndpoint != nil:
		return *kc.Spec.ControlPlaneEndpoint
	case kc.Spec.Topology.ControlPlane.Replicas > 1:
		return v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointVIP}
	default:
		return v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointNode}
	}
}

// localPort is where the API server of each control plane listens. What is in front of a
// custom endpoint leads its port there.
func (p plan) localPort() int32 {
	return pick(p.endpoint.Mode == v1alpha1.EndpointCustom, defaultPort, p.port)
}

// controlPlanes are the members that run the control plane.
func (p plan) controlPlanes() []member {
	return slices.DeleteFunc(slices.Clone(p.members), func(m member) bool { return m.role != v1alpha1.RoleControlPlane })
}

func (p plan) count(role string) (n int) {
	for _, m := range p.members {
		if m.role == role {
			n++
		}
	}
	return n
}

// clusterID is the name of a cluster for people and other systems.
func clusterID(kc *v1alpha1.KubernetesCluster) string {
	if kc.Spec.Data.ClusterID != "" {
		return kc.Spec.Data.ClusterID
	}
	return kc.Name
}

// labelsOf are the labels of everything that belongs to a cluster.
func labelsOf(kc *v1alpha1.KubernetesCluster) map[string]string {
	return map[string]string{
		v1alpha1.LabelClusterName: kc.Name,
		v1alpha1.LabelClusterID:   labelSafe(clusterID(kc)),
		v1alpha1.LabelManagedBy:   functionName,
	}
}

// labelSafe leaves out of a text what a label value cannot have.
func labelSafe(s string) string {
	safe := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		default:
			return -1
		}
	}, s)
	return kube.LabelValue(strings.Trim(safe, "-_."))
}

// machineOf is the Machine of a member. image is the disk image that it boots.
func machineOf(kc *v1alpha1.KubernetesCluster, p plan, m member, image string) *v1alpha1.Machine {
	labels := labelsOf(kc)
	labels[v1alpha1.LabelClusterRole] = m.role
	labels[v1alpha1.LabelNodeRole] = m.role
	labels[v1alpha1.LabelMachineTemplate] = m.properties.Template
	annotations := map[string]string{}
	finalizers := []string{v1alpha1.FinalizerMachine}
	if m.role == v1alpha1.RoleWorker {
		labels[v1alpha1.LabelWorkerGroup] = m.pool
		annotations[v1alpha1.AnnotationNodePool] = m.pool
	} else {
		finalizers = append(finalizers, v1alpha1.FinalizerEtcd)
	}
	return &v1alpha1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: kc.Namespace, Name: m.name, Labels: labels, Annotations: annotations,
			Finalizers:      finalizers,
			OwnerReferences: kube.Owned(kc, v1alpha1.GroupVersion.String(), "KubernetesCluster"),
		},
		Spec: v1alpha1.MachineSpec{
			Template: m.properties.Template, ProviderRef: m.properties.ProviderRef,
			NetworkNamespaceName: kc.Spec.NetworkNamespaceName,
			CloudInit: &v1alpha1.CloudInit{SecretRef: &v1alpha1.CloudInitSecretReference{
				Name: v1alpha1.MachineConfigSecretName(m.name), Key: v1alpha1.MachineConfigKey,
			}},
			OS: &v1alpha1.MachineOS{Family: "linux", Distribution: "talos", Version: p.talos, Architecture: "amd64", ImageID: image},
		},
	}
}
