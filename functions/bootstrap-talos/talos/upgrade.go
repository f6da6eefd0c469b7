package talos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	machineconfig "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/apis/cluster/plan"
	vitistack "github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// pullTimeout is the time in which a node pulls images before it answers. A node
// that needs longer keeps what it has pulled, and gets another request.
const pullTimeout = 18 * time.Second

// UpgradeTalos has a node install an image beside its present one and reboot into it. The node
// answers before it does so. A node that runs the version is left alone. A refusal of the node
// is a UserError.
func UpgradeTalos(ctx context.Context, address string, a *Credentials, image, version string) error {
	ctx, c, end, err := Connect(ctx, address, a, pullTimeout)
	if err != nil {
		return err
	}
	defer end()
	now, err := c.Version(ctx)
	if err != nil {
		return fmt.Errorf("read version of %s: %w", address, err)
	}
	if m := now.GetMessages(); len(m) > 0 && strings.TrimPrefix(m[0].GetVersion().GetTag(), "v") == version {
		return nil
	}
	// Talos 1.11 to 1.13 have this call in common. It continues after its answer, so the delivery
	// can end.
	_, err = c.MachineClient.Upgrade(ctx, &machine.UpgradeRequest{Image: image, Preserve: true}) //nolint:staticcheck // its successor is not there before 1.13
	return refusedError(err, "install "+image)
}

// refusedError returns a UserError if the node has answered that it refuses, and otherwise err.
func refusedError(err error, what string) error {
	switch status.Code(err) {
	case codes.OK, codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return err
	default:
		return reconcile.UserError{Reason: "UpgradeRefused", Message: fmt.Sprintf("it does not %s: %s", what, status.Convert(err).Message())}
	}
}

// UpgradeKubernetes changes the images of the Kubernetes components in the configuration that a
// node runs, and changes nothing else. The node pulls the images first, so that a component is away only while it
// restarts. A refusal of the node, and an image that its registry does not have, is a UserError.
func UpgradeKubernetes(ctx context.Context, address string, a *Credentials, kind vitistack.UpgradeKind, version string) error {
	ctx, c, end, err := Connect(ctx, address, a, pullTimeout)
	if err != nil {
		return err
	}
	defer end()
	current, err := readActiveConfig(ctx, c, address)
	if err != nil {
		return err
	}
	changed, err := withKubernetesVersion(current, kind, version)
	if err != nil || changed == nil {
		return err
	}
	if err := pullUpgrade(ctx, c, current, kind, version); err != nil {
		return err
	}
	_, err = c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: changed, Mode: machine.ApplyConfigurationRequest_NO_REBOOT})
	return refusedError(err, "take Kubernetes "+version)
}

// pullUpgrade has a node pull the images of an upgrade, as talosctl upgrade-k8s does.
func pullUpgrade(ctx context.Context, c *client.Client, p talosconfig.Provider, kind vitistack.UpgradeKind, version string) error {
	tag := "v" + version
	if kind == vitistack.UpgradeKubelet {
		return pullImage(ctx, c, common.ContainerdNamespace_NS_SYSTEM, version, plan.WithTag(p.Machine().Kubelet().Image(), tag))
	}
	for _, image := range []string{p.Cluster().APIServer().Image(), p.Cluster().ControllerManager().Image(), p.Cluster().Scheduler().Image()} {
		if err := pullImage(ctx, c, common.ContainerdNamespace_NS_CRI, version, plan.WithTag(image, tag)); err != nil {
			return err
		}
	}
	return nil
}

// WithUpgrade returns a rendered configuration for a node whose upgrade of Kubernetes has failed after the node got the version: with
// that version of the components of the kind. The upgrade of a control plane keeps the kubelet that the node runs, because its turn
// comes after every API server.
func WithUpgrade(ctx context.Context, address string, a *Credentials, rendered []byte, kind vitistack.UpgradeKind, version string) ([]byte, error) {
	wanted, err := configloader.NewFromBytes(rendered)
	if err != nil {
		return nil, fmt.Errorf("read configuration for %s: %w", address, err)
	}
	if kind == vitistack.UpgradeControlPlane {
		ctx, c, end, err := Connect(ctx, address, a, longTimeout)
		if err != nil {
			return nil, err
		}
		defer end()
		current, err := readActiveConfig(ctx, c, address)
		if err != nil {
			return nil, err
		}
		if wanted, err = withKubelet(wanted, current.Machine().Kubelet().Image()); err != nil {
			return nil, err
		}
	}
	changed, err := withKubernetesVersion(wanted, kind, version)
	if err != nil || changed != nil {
		return changed, err
	}
	return Encode(wanted)
}

// withKubelet returns a configuration with an image of the kubelet.
func withKubelet(p talosconfig.Provider, image string) (talosconfig.Provider, error) {
	next, err := p.PatchV1Alpha1(func(v *machineconfig.Config) error {
		if v.MachineConfig.MachineKubelet == nil {
			v.MachineConfig.MachineKubelet = &machineconfig.KubeletConfig{}
		}
		v.MachineConfig.MachineKubelet.KubeletImage = image
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("change configuration: %w", err)
	}
	return next, nil
}

// withKubernetesVersion returns a configuration with the images of a version, or nil if it has
// them. Registries and names of images stay.
func withKubernetesVersion(p talosconfig.Provider, kind vitistack.UpgradeKind, version string) ([]byte, error) {
	same := true
	retag := func(image *string, otherwise string) {
		if *image == "" {
			*image = otherwise
		}
		if tagged := plan.WithTag(*image, "v"+version); tagged != *image {
			*image, same = tagged, false
		}
	}
	next, err := p.PatchV1Alpha1(func(v *machineconfig.Config) error {
		switch {
		case v.MachineConfig == nil || v.ClusterConfig == nil:
			return errors.New("it has no Kubernetes")
		case kind == vitistack.UpgradeKubelet:
			if v.MachineConfig.MachineKubelet == nil {
				v.MachineConfig.MachineKubelet = &machineconfig.KubeletConfig{}
			}
			retag(&v.MachineConfig.MachineKubelet.KubeletImage, "ghcr.io/siderolabs/kubelet")
		default:
			retagControlPlane(v.ClusterConfig, retag)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("change configuration: %w", err)
	}
	if same {
		return nil, nil
	}
	return Encode(next)
}

func retagControlPlane(c *machineconfig.ClusterConfig, retag func(image *string, otherwise string)) {
	if c.APIServerConfig == nil {
		c.APIServerConfig = &machineconfig.APIServerConfig{}
	}
	if c.ControllerManagerConfig == nil {
		c.ControllerManagerConfig = &machineconfig.ControllerManagerConfig{}
	}
	if c.SchedulerConfig == nil {
		c.SchedulerConfig = &machineconfig.SchedulerConfig{}
	}
	if c.ProxyConfig == nil {
		c.ProxyConfig = &machineconfig.ProxyConfig{}
	}
	retag(&c.APIServerConfig.ContainerImage, "registry.k8s.io/kube-apiserver")
	retag(&c.ControllerManagerConfig.ContainerImage, "registry.k8s.io/kube-controller-manager")
	retag(&c.SchedulerConfig.ContainerImage, "registry.k8s.io/kube-scheduler")
	retag(&c.ProxyConfig.ContainerImage, "registry.k8s.io/kube-proxy")
}
