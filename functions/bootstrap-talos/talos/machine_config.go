package talos

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	documents "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	machineconfig "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"

	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// ClusterConfig is what the configurations of all nodes of a cluster have in common.
type ClusterConfig struct {
	Name     string
	Endpoint string
	// SANs are further names and addresses of the API server.
	SANs       []string
	Talos      string
	Contract   *config.VersionContract
	Disk       string
	Installer  string
	Networking v1alpha1.ClusterNetworking
	Keys       *Keys
	// VIP is the virtual address that control planes share, or the zero value.
	VIP netip.Addr
	// Port is the port of the API servers, zero for the default of Talos.
	Port int32
	// EventSink is the host and port to which nodes send their events, empty if they send none.
	EventSink string
}

// NodeConfig is what the configuration of one node has of its own.
type NodeConfig struct {
	Name    string
	Role    string
	Version string
	Links   []Link
	// Labels and Taints are those of the pool, and Patches those of the spec.
	Labels  map[string]string
	Taints  []v1alpha1.NodeTaint
	Patches []Patch
	// Installed is what the node was installed with, of the parts that only a new node gets. IsAdopted is whether that is
	// not known yet, because another program has installed the node.
	Installed nodeconfig.Parts
	IsAdopted bool
}

// Render returns the machine configuration of a node for its Talos version, validated strictly
// as the node does. A UserError names the patch that is wrong.
func Render(c ClusterConfig, n NodeConfig) (config.Provider, error) {
	input, err := generate.NewInput(c.Name, c.Endpoint, n.Version, generateOptions(c)...)
	if err != nil {
		return nil, fmt.Errorf("generate configuration of %s: %w", n.Name, err)
	}
	if c.Networking.PodCIDR != "" {
		input.PodNet = []string{c.Networking.PodCIDR}
	}
	if c.Networking.ServiceCIDR != "" {
		input.ServiceNet = []string{c.Networking.ServiceCIDR}
	}
	kind := machine.TypeWorker
	if n.Role == v1alpha1.RoleControlPlane {
		kind = machine.TypeControlPlane
	}
	provider, err := input.Config(kind)
	if err != nil {
		return nil, fmt.Errorf("generate configuration of %s: %w", n.Name, err)
	}
	if c.Keys.Next != nil {
		if provider, err = provider.PatchV1Alpha1(c.Keys.setAuthorities); err != nil {
			return nil, fmt.Errorf("write authorities of %s: %w", n.Name, err)
		}
	}
	if provider, err = addNodeSettings(provider, c, n); err == nil {
		provider, err = addEventSink(provider, c)
	}
	if err != nil {
		return nil, fmt.Errorf("write configuration of %s: %w", n.Name, err)
	}
	for _, p := range n.Patches {
		if provider, err = p.apply(provider, n); err != nil {
			return nil, err
		}
	}
	if _, err := provider.Validate(metal{}, validation.WithLocal(), validation.WithStrict()); err != nil {
		return nil, fmt.Errorf("validate configuration of %s: %w", n.Name, err)
	}
	return provider, nil
}

func generateOptions(c ClusterConfig) []generate.Option {
	o := []generate.Option{
		generate.WithSecretsBundle(c.Keys.issuer()), generate.WithVersionContract(c.Contract),
		generate.WithInstallDisk(c.Disk), generate.WithInstallImage(c.Installer),
		generate.WithAdditionalSubjectAltNames(c.SANs),
	}
	if c.Port != 0 && c.Port != plan.DefaultPort {
		o = append(o, generate.WithLocalAPIServerPort(int(c.Port)))
	}
	if c.Networking.DNSDomain != "" {
		o = append(o, generate.WithDNSDomain(c.Networking.DNSDomain))
	}
	if c.Networking.CNI == v1alpha1.CNINone {
		o = append(o, generate.WithClusterCNIConfig(&machineconfig.CNIConfig{CNIName: string(v1alpha1.CNINone)}))
	}
	return o
}

// addNodeSettings adds a node's name, addresses and share of the virtual address: as separate
// documents since Talos 1.12, and in the v1alpha1 document before.
func addNodeSettings(p config.Provider, c ClusterConfig, n NodeConfig) (config.Provider, error) {
	if len(n.Labels) > 0 || len(n.Taints) > 0 {
		var err error
		if p, err = p.PatchV1Alpha1(func(v *machineconfig.Config) error {
			setLabels(v.MachineConfig, n)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if !c.Contract.MultidocNetworkConfigSupported() {
		return p.PatchV1Alpha1(func(v *machineconfig.Config) error {
			v.MachineConfig.MachineNetwork = legacyNetwork(c, n) //nolint:staticcheck // versions before 1.12 have nothing else
			return nil
		})
	}
	var kept []documents.Document
	for _, d := range p.Documents() {
		if _, generated := d.(*network.HostnameConfigV1Alpha1); !generated {
			kept = append(kept, d)
		}
	}
	extra, err := networkDocuments(c, n)
	if err != nil {
		return nil, err
	}
	return container.New(append(kept, extra...)...)
}

// setLabels has a node register with its labels and taints, so that no pod is scheduled before
// them. Labels that a kubelet must not set itself follow through the workload API.
func setLabels(m *machineconfig.MachineConfig, n NodeConfig) {
	labels := n.Labels
	if n.Role == v1alpha1.RoleWorker {
		labels = kubeletLabels(labels)
	}
	for key, value := range labels {
		if m.MachineNodeLabels == nil {
			m.MachineNodeLabels = map[string]string{}
		}
		m.MachineNodeLabels[key] = value
	}
	for _, t := range n.Taints {
		if m.MachineNodeTaints == nil {
			m.MachineNodeTaints = map[string]string{}
		}
		m.MachineNodeTaints[t.Key] = strings.TrimPrefix(t.Value+":"+t.Effect, ":")
	}
}

// metal is the mode for which configurations are validated: Talos is installed to a disk.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// kubeletLabels returns the labels that a kubelet may set on its own Node. The admission plugin
// NodeRestriction refuses all labels if one is not allowed.
func kubeletLabels(labels map[string]string) map[string]string {
	free := map[string]string{}
	for key, value := range labels {
		domain, _, found := strings.Cut(key, "/")
		if !found || (!strings.HasSuffix("."+domain, ".kubernetes.io") && !strings.HasSuffix("."+domain, ".k8s.io")) {
			free[key] = value
		}
	}
	return free
}

// InContractOf returns the configuration for the Talos version that a Machine was created with.
// Newer versions understand and keep it.
func InContractOf(common ClusterConfig, m *v1alpha1.Machine) ClusterConfig {
	if m == nil || m.Spec.OS == nil {
		return common
	}
	if contract, err := config.ParseContractFromVersion("v" + m.Spec.OS.Version); err == nil {
		common.Contract = contract
	}
	return common
}
