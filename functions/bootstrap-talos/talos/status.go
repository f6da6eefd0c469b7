package talos

import (
	"context"
	"fmt"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/cluster/plan"
)

// ReadManifests returns the manifests of a control plane that its machine configuration can change.
func ReadManifests(ctx context.Context, address string, a *Credentials) ([]addons.TalosManifest, error) {
	ctx, c, end, err := Connect(ctx, address, a, ShortTimeout)
	if err != nil {
		return nil, err
	}
	defer end()
	list, err := safe.StateListAll[*k8s.Manifest](ctx, c.COSI)
	if err != nil {
		return nil, fmt.Errorf("list manifests of %s: %w", address, err)
	}
	var all []addons.TalosManifest
	for manifest := range list.All() {
		var objects []map[string]any
		for _, item := range manifest.TypedSpec().Items {
			objects = append(objects, item.Object)
		}
		if m, changes := addons.NewTalosManifest(manifest.Metadata().ID(), objects); changes {
			all = append(all, m)
		}
	}
	return all, nil
}

// ReadAddons returns the addons that a control plane's Talos would install into a new cluster.
func ReadAddons(ctx context.Context, address string, a *Credentials) ([]plan.Addon, error) {
	ctx, c, end, err := Connect(ctx, address, a, ShortTimeout)
	if err != nil {
		return nil, err
	}
	defer end()
	manifests, err := safe.StateGetByID[*k8s.BootstrapManifestsConfig](ctx, c.COSI, k8s.BootstrapManifestsConfigID)
	if err != nil {
		return nil, fmt.Errorf("read what %s puts into clusters: %w", address, err)
	}
	spec := manifests.TypedSpec()
	var installed []plan.Addon
	if spec.ProxyEnabled {
		installed = append(installed, plan.Addon{Resource: "daemonsets", Name: "kube-proxy", Image: spec.ProxyImage, DefaultImage: constants.KubeProxyImage})
	}
	if spec.CoreDNSEnabled {
		installed = append(installed, plan.Addon{Resource: "deployments", Name: "coredns", Image: spec.CoreDNSImage, DefaultImage: constants.CoreDNSImage})
	}
	return installed, nil
}

// UnmetConditions returns the stage of a node and the conditions that it waits for, or an empty
// string.
func UnmetConditions(ctx context.Context, address string, a *Credentials) string {
	if state, _ := Probe(ctx, address, a); state != Configured {
		return ""
	}
	ctx, client, end, err := Connect(ctx, address, a, DialTimeout)
	if err != nil {
		return ""
	}
	defer end()
	status, err := safe.StateGetByID[*runtime.MachineStatus](ctx, client.COSI, runtime.MachineStatusID)
	if err != nil || status.TypedSpec().Status.Ready {
		return ""
	}
	var unmet []string
	for _, u := range status.TypedSpec().Status.UnmetConditions {
		unmet = append(unmet, u.Reason)
	}
	return fmt.Sprintf("%s: %s", status.TypedSpec().Stage, strings.Join(unmet, ", "))
}

// IsMachineReady reports whether a node answers and is ready by its own status: its services run, its static pods and its Node are Ready.
func IsMachineReady(ctx context.Context, address string, a *Credentials) bool {
	if state, _ := Probe(ctx, address, a); state != Configured {
		return false
	}
	ctx, client, end, err := Connect(ctx, address, a, DialTimeout)
	if err != nil {
		return false
	}
	defer end()
	status, err := safe.StateGetByID[*runtime.MachineStatus](ctx, client.COSI, runtime.MachineStatusID)
	return err == nil && status.TypedSpec().Status.Ready
}
