package talos

import (
	"context"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/config"

	"github.com/vitistack/stack/apis/cluster/plan"
)

// RunningVersions are the versions of a node without v: of Talos, and of the components of Kubernetes in the configuration that it runs. One
// whose image is named by a digest is empty.
type RunningVersions struct{ Talos, APIServer, Kubelet string }

// ReadRunningVersions reads the versions of a node.
func ReadRunningVersions(ctx context.Context, address string, a *Credentials) (RunningVersions, error) {
	ctx, c, end, err := Connect(ctx, address, a, ShortTimeout)
	if err != nil {
		return RunningVersions{}, err
	}
	defer end()
	now, err := c.Version(ctx)
	if err != nil {
		return RunningVersions{}, fmt.Errorf("read version of %s: %w", address, err)
	}
	current, err := readActiveConfig(ctx, c, address)
	if err != nil {
		return RunningVersions{}, err
	}
	versions := RunningVersions{APIServer: versionOf(current.Cluster().APIServer().Image()), Kubelet: versionOf(current.Machine().Kubelet().Image())}
	if m := now.GetMessages(); len(m) > 0 {
		versions.Talos = strings.TrimPrefix(m[0].GetVersion().GetTag(), "v")
	}
	return versions, nil
}

// versionOf returns the tag of an image without v.
func versionOf(image string) string { return strings.TrimPrefix(plan.TagOf(image), "v") }

// readActiveConfig reads the configuration that a node runs.
func readActiveConfig(ctx context.Context, c *client.Client, address string) (talosconfig.Provider, error) {
	active, err := safe.StateGetByID[*resources.MachineConfig](ctx, c.COSI, resources.ActiveID)
	if err != nil {
		return nil, fmt.Errorf("read configuration of %s: %w", address, err)
	}
	return active.Provider(), nil
}
