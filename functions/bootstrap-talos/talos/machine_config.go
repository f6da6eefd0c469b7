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

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/plan"
)

// ClusterConfig is what all nodes of a cluster have in common.
type ClusterConfig struct {
	Name     string
	Endpoint string
	// Sans are the other names and addresses of the control plane.
	Sans       []string
	Talos      string
	Contract   *config.VersionContract
	Disk       string
	Installer  string
	Networking v1alpha1.ClusterNetworking
	Keys       *Keys
	// Vip is the virtual address that control planes share, or the zero value.
	Vip netip.Addr
	// Port is where API servers listen, zero for Talos's default.
	Port int32
}

// NodeConfig is what one node has of its own.
type NodeConfig struct {
	Name    string
	Role    string
	Version string
	Links   []Link
	// labels and taints are those of its pool, patches what somebody changes.
	Labels  map[string]string
	Taints  []v1alpha1.NodeTaint
	Patches []Patch
}

// Render writes the machine configuration of a node in the dialect of its
// cluster's Talos version, and validates it as a node would, strictly.
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
	if provider, err = addNodeSettings(provider, c, n); err != nil {
		return nil, fmt.Errorf("write configuration of %s: %w", n.Name, err)
	}
	for _, p := range n.Patches {
		if provider, err = p.apply(provider, n.Name); err != nil {
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
		generate.WithAdditionalSubjectAltNames(c.Sans),
	}
	if c.Port != 0 && c.Port != plan.DefaultPort {
		o = append(o, generate.WithLocalAPIServerPort(int(c.Port)))
	}
	if c.Networking.DNSDomain != "" {
		o = append(o, generate.WithDNSDomain(c.Networking.DNSDomain))
	}
	return o
}

// addNodeSettings adds a node's name, addresses and share of the virtual address:
// in documents of their own where the dialect has them, and otherwise in the one
// document of older versions.
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

// setLabels has a node begin with its labels and taints, so that no pod comes before
// them. What a kubelet may not set itself it gets later.
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

// metal is the mode that configurations are validated for: machines that install
// Talos to their disk.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// kubeletLabels are the labels that a kubelet may give its own Node, by the admission
// plugin NodeRestriction. With another one among them it could set none.
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

// InContractOf is the configuration in the dialect of the Talos version that a machine
// was made with, which newer versions understand and keep.
func InContractOf(common ClusterConfig, m *v1alpha1.Machine) ClusterConfig {
	if m == nil || m.Spec.OS == nil {
		return common
	}
	if contract, err := config.ParseContractFromVersion("v" + m.Spec.OS.Version); err == nil {
		common.Contract = contract
	}
	return common
}
