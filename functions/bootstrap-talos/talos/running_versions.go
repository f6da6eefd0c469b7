package talos

import (
	"context"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/config"
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
	current, err := safe.StateGetByID[*resources.MachineConfig](ctx, c.COSI, resources.ActiveID)
	if err != nil {
		return RunningVersions{}, fmt.Errorf("read configuration of %s: %w", address, err)
	}
	versions := RunningVersions{APIServer: versionOf(current.Provider().Cluster().APIServer().Image()), Kubelet: versionOf(current.Provider().Machine().Kubelet().Image())}
	if m := now.GetMessages(); len(m) > 0 {
		versions.Talos = strings.TrimPrefix(m[0].GetVersion().GetTag(), "v")
	}
	return versions, nil
}

// versionOf returns the tag of an image without v.
func versionOf(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return strings.TrimPrefix(tag, "v")
}
