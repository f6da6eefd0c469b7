package talos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	machineconfig "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/apis/cluster/plan"
	vitistack "github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// installerCallTimeout is the time in which a node pulls an installer image before it answers. A node
// that needs longer keeps what it has pulled, and gets another request.
const installerCallTimeout = 18 * time.Second

// UpgradeTalos has a node install an image beside its present one and reboot into it. The node
// answers before it does so. A node that runs the version is left alone. A refusal of the node
// is a UserError.
func UpgradeTalos(ctx context.Context, address string, a *Credentials, image, version string) error {
	ctx, c, end, err := Connect(ctx, address, a, installerCallTimeout)
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
// node runs, and changes nothing else. A refusal of the node is a UserError.
func UpgradeKubernetes(ctx context.Context, address string, a *Credentials, kind vitistack.UpgradeKind, version string) error {
	ctx, c, end, err := Connect(ctx, address, a, longTimeout)
	if err != nil {
		return err
	}
	defer end()
	current, err := safe.StateGetByID[*resources.MachineConfig](ctx, c.COSI, resources.ActiveID)
	if err != nil {
		return fmt.Errorf("read configuration of %s: %w", address, err)
	}
	changed, err := withKubernetesVersion(current.Provider(), kind, version)
	if err != nil || changed == nil {
		return err
	}
	if err := checkRelease(ctx, c, version, upgradedImage(current.Provider(), kind, version)); err != nil {
		return err
	}
	_, err = c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: changed, Mode: machine.ApplyConfigurationRequest_NO_REBOOT})
	return refusedError(err, "take Kubernetes "+version)
}

// upgradedImage returns the image that an upgrade needs first, of the API server or of the kubelet.
func upgradedImage(p talosconfig.Provider, kind vitistack.UpgradeKind, version string) string {
	if kind == vitistack.UpgradeKubelet {
		return plan.WithTag(p.Machine().Kubelet().Image(), "v"+version)
	}
	return plan.WithTag(p.Cluster().APIServer().Image(), "v"+version)
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
