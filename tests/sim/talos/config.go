package talos

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// readConfig parses a complete machine configuration, as strictly as a node: an unknown key is an
// error.
func readConfig(data []byte) (config.Provider, error) {
	cfg, err := configloader.NewFromBytes(data)
	if err != nil {
		return nil, err
	}
	if !cfg.CompleteForBoot() {
		return nil, errors.New("the machine configuration is not complete: machine.type, machine.ca and cluster are required")
	}
	return cfg, nil
}

// since has the Talos version that introduced a kind of document. A kind without an entry is older
// than every simulated version.
var since = map[string]*config.VersionContract{
	"BondConfig": config.TalosVersion1_12, "BridgeConfig": config.TalosVersion1_12,
	"DHCPv4Config": config.TalosVersion1_12, "DHCPv6Config": config.TalosVersion1_12,
	"DummyLinkConfig": config.TalosVersion1_12, "HCloudVIPConfig": config.TalosVersion1_12,
	"HostnameConfig": config.TalosVersion1_12, "Layer2VIPConfig": config.TalosVersion1_12,
	"LinkAliasConfig": config.TalosVersion1_12, "LinkConfig": config.TalosVersion1_12,
	"OOMConfig": config.TalosVersion1_12, "ResolverConfig": config.TalosVersion1_12,
	"StaticHostConfig": config.TalosVersion1_12, "TimeSyncConfig": config.TalosVersion1_12,
	"VLANConfig": config.TalosVersion1_12, "WireguardConfig": config.TalosVersion1_12,
	"RegistryMirrorConfig": config.TalosVersion1_12, "RegistryAuthConfig": config.TalosVersion1_12,
	"RegistryTLSConfig": config.TalosVersion1_12, "CRIBaseRuntimeSpecConfig": config.TalosVersion1_12,
	"BlackholeRouteConfig": config.TalosVersion1_13, "EnvironmentConfig": config.TalosVersion1_13,
	"ExternalVolumeConfig": config.TalosVersion1_13, "ImageVerificationConfig": config.TalosVersion1_13,
	"KubeSpanConfig": config.TalosVersion1_13, "RoutingRuleConfig": config.TalosVersion1_13,
	"TCPProbeConfig": config.TalosVersion1_13, "VRFConfig": config.TalosVersion1_13,
}

// speaks rejects kinds of documents that an older Talos does not support.
func speaks(version *config.VersionContract, cfg config.Provider) error {
	for _, doc := range cfg.Documents() {
		if first, known := since[doc.Kind()]; known && first.Greater(version) {
			return fmt.Errorf("error decoding document %s/%s/: %q %q: not registered", doc.APIVersion(), doc.Kind(), doc.Kind(), doc.APIVersion())
		}
	}
	raw := cfg.RawV1Alpha1()
	if raw == nil || raw.MachineConfig == nil {
		return nil
	}
	install := raw.MachineConfig.MachineInstall
	if config.TalosVersion1_12.Greater(version) && install != nil && install.InstallGrubUseUKICmdline != nil {
		return errors.New("error decoding document /v1alpha1/: unknown keys found during decoding:\nmachine:\n    install:\n        grubUseUKICmdline: " +
			fmt.Sprint(*install.InstallGrubUseUKICmdline) + "\n")
	}
	return nil
}

// immediately returns nil if a running node applies a new configuration without a reboot, and
// otherwise why it requires one.
func immediately(current, next config.Provider) error {
	now, then := current.RawV1Alpha1(), next.RawV1Alpha1()
	if now == nil || then == nil {
		return errors.New("new config is not v1alpha1")
	}
	if !reflect.DeepEqual(lasting(now), lasting(then)) {
		return errors.New("this config change can't be applied in immediate mode")
	}
	return nil
}

// lasting returns the part of a configuration that only a reboot can change.
func lasting(cfg *v1alpha1.Config) *v1alpha1.Config {
	c := cfg.DeepCopy()
	c.ConfigDebug, c.ClusterConfig = nil, nil
	if m := c.MachineConfig; m != nil {
		m.MachineCA, m.MachineAcceptedCAs, m.MachineCertSANs = nil, nil, nil
		m.MachineTime, m.MachineNetwork, m.MachineInstall = nil, nil, nil //nolint:staticcheck // older versions use them
		m.MachineSysfs, m.MachineSysctls, m.MachineKernel = nil, nil, nil
		m.MachineLogging, m.MachineSeccompProfiles = nil, nil
		m.MachineControlPlane, m.MachineKubelet, m.MachinePods = nil, nil, nil
		m.MachineRegistries = v1alpha1.RegistriesConfig{} //nolint:staticcheck // older versions use it
		m.MachineNodeAnnotations, m.MachineNodeLabels, m.MachineNodeTaints = nil, nil, nil
		if f := m.MachineFeatures; f != nil {
			f.KubernetesTalosAPIAccessConfig, f.KubePrismSupport, f.HostDNSSupport = nil, nil, nil
			f.ImageCacheSupport, f.FeatureNodeAddressSortAlgorithm = nil, ""
		}
	}
	return c
}

// clusterKey returns the ID of the configuration's cluster. Every member has it, and it is the same
// after a rotation of the authorities.
func clusterKey(cfg config.Provider) string {
	sum := sha256.Sum256([]byte(cfg.Cluster().ID()))
	return hex.EncodeToString(sum[:8])
}

// releaseOf returns the release that an installer image installs. The image's tag is the version, as
// for Talos' own images and those of the image factory.
func releaseOf(image string, present release) (release, error) {
	if image == "" {
		return present, nil
	}
	tag := imageTag(image)
	if _, err := parseVersion(tag); err != nil {
		return present, fmt.Errorf("image %q: %w", image, err)
	}
	return release{Version: "v" + strings.TrimPrefix(tag, "v"), Image: image}, nil
}

// imageTag returns the tag of an image reference, or "" without one.
func imageTag(image string) string {
	ref, _, _ := strings.Cut(image, "@")
	name := ref[strings.LastIndex(ref, "/")+1:]
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// schematicOf returns the image factory's schematic of an installer image, if any.
func schematicOf(image string) string {
	parts := strings.Split(strings.SplitN(image, ":", 2)[0], "/")
	if last := parts[len(parts)-1]; len(parts) > 2 && len(last) == 64 {
		return last
	}
	return ""
}

// upgradeable makes the checks of the next release's installer before it writes to the disk.
func upgradeable(from, to release, cfg config.Provider) error {
	host, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: from.Version})
	if err != nil {
		return err
	}
	target, err := compatibility.ParseTalosVersion(&machineapi.VersionInfo{Tag: to.Version})
	if err != nil {
		return err
	}
	if err := target.UpgradeableFrom(host); err != nil {
		return err
	}
	if cfg == nil {
		return nil
	}
	kubernetes, err := compatibility.ParseKubernetesVersion(strings.TrimPrefix(imageTag(cfg.Machine().Kubelet().Image()), "v"))
	if err != nil {
		return fmt.Errorf("kubelet image %q: %w", cfg.Machine().Kubelet().Image(), err)
	}
	return kubernetes.SupportedWith(target)
}
