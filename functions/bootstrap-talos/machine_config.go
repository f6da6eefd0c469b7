package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// configRenderer renders the machine configurations of clusters, and saves them without secrets.
type configRenderer struct {
	kube      *kube.Client
	manifests *manifests.Store
	images    talos.Images
	claims    *configClaims
	// eventSink is the address to which nodes send their events, or empty.
	eventSink string
}

// renderMissing finds the members whose nodes have not been seen with their configurations, and
// renders the configurations that have not been provided. A UserError about a configuration leaves the nodes of
// a cluster as they are.
func (r *configRenderer) renderMissing(ctx context.Context, c *cluster) error {
	members := c.unconfiguredMembers()
	configs, err := r.renderAndSave(ctx, c, c.membersWithoutConfig(members))
	if err != nil {
		return c.tolerateUserError(v1alpha1.ConditionConfigApplied, err)
	}
	c.observed.unconfigured, c.observed.configs = members, configs
	return nil
}

// renderAndSave renders the configurations of the members that no other delivery provides, and saves them without secrets.
func (r *configRenderer) renderAndSave(ctx context.Context, c *cluster, members []plan.Member) (map[string][]byte, error) {
	members = r.claims.claim(c, members)
	configs, files, err := r.renderConfigs(ctx, c, members)
	if err == nil && len(files) > 0 {
		err = r.manifests.Save(ctx, c.KubernetesCluster, files)
	}
	if err != nil {
		for _, m := range members {
			r.claims.release(c.observed.machines[m.Name].GetUID())
		}
		return nil, err
	}
	return configs, nil
}

// renderConfigs renders the configurations of members. files are the same without secrets, to be
// saved.
func (r *configRenderer) renderConfigs(ctx context.Context, c *cluster, members []plan.Member) (configs, files map[string][]byte, err error) {
	configs, files = map[string][]byte{}, map[string][]byte{}
	c.observed.macs = map[string][]string{}
	common := r.clusterConfig(c)
	networks, err := r.readNetworks(ctx, c, members)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range members {
		nc := networks[m.Name]
		c.observed.macs[m.Name] = talos.MACsOf(nc)
		patches, err := r.loadPatches(ctx, c, m.Role, m.Properties)
		if err != nil {
			return nil, nil, err
		}
		machine := c.observed.machines[m.Name]
		installed, isAdopted := nodeconfig.Parts(nil), false
		if machine != nil && plan.IsInstalled(machine) {
			known := false
			installed, known = plan.NodeConfigOf(machine)
			isAdopted = !known
		}
		p, err := talos.Render(talos.InContractOf(common, machine), talos.NodeConfig{
			Name: m.Name, Role: m.Role, Version: plan.JoiningVersion(m.Version, c.Status.Version), Links: talos.LinksOf(nc),
			Labels: m.Properties.Labels, Taints: m.Properties.Taints, Patches: patches,
			Installed: installed, IsAdopted: isAdopted,
		})
		if errors.As(err, new(reconcile.UserError)) {
			return nil, nil, err
		}
		if err != nil {
			return nil, nil, reconcile.UserError{Reason: "InvalidConfiguration", Message: err.Error()}
		}
		if configs[m.Name], err = talos.Encode(p); err != nil {
			return nil, nil, fmt.Errorf("encode configuration of %s: %w", m.Name, err)
		}
		if files[m.Name+".talos.yaml"], err = talos.EncodeRedacted(p); err != nil {
			return nil, nil, fmt.Errorf("encode configuration of %s: %w", m.Name, err)
		}
	}
	return configs, files, nil
}

// readNetworks returns the NetworkConfigurations of members by name, in one request if all have the label of the
// cluster. One that does not exist is empty.
func (r *configRenderer) readNetworks(ctx context.Context, c *cluster, members []plan.Member) (map[string]*v1alpha1.NetworkConfiguration, error) {
	found := map[string]*v1alpha1.NetworkConfiguration{}
	if len(members) > 1 {
		list := &v1alpha1.NetworkConfigurationList{}
		if err := r.kube.List(ctx, c.Namespace, v1alpha1.LabelClusterName+"="+c.Name, list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			found[list.Items[i].Name] = &list.Items[i]
		}
	}
	for _, m := range members {
		if found[m.Name] != nil {
			continue
		}
		nc := &v1alpha1.NetworkConfiguration{}
		if err := r.kube.Get(ctx, c.Namespace, m.Name, nc); err != nil && !kube.NotFound(err) {
			return nil, err
		}
		found[m.Name] = nc
	}
	return found, nil
}

// clusterConfig returns what the configurations of all nodes have in common.
func (r *configRenderer) clusterConfig(c *cluster) talos.ClusterConfig {
	common := talos.ClusterConfig{
		Name: c.Name, Endpoint: c.Status.Endpoint, Talos: c.plan.Talos, Contract: c.plan.Contract,
		Disk: "/dev/vda", Installer: r.images.Installer(c.KubernetesCluster, c.plan.Talos), Keys: c.observed.keys, VIP: c.observed.vip, Port: c.plan.LocalPort(),
		EventSink: r.eventSink,
	}
	if c.Spec.Networking != nil {
		common.Networking = *c.Spec.Networking
	}
	if u, err := url.Parse(c.Status.Endpoint); err == nil {
		common.Networking = plan.WithDefaultPrefixes(common.Networking, u.Hostname())
	}
	if c.Spec.Talos != nil && c.Spec.Talos.InstallDisk != "" {
		common.Disk = c.Spec.Talos.InstallDisk
	}
	if c.observed.vip.IsValid() {
		common.SANs = append(common.SANs, c.observed.vip.String())
	}
	if u, err := url.Parse(c.observed.wantedEndpoint); err == nil && c.observed.wantedEndpoint != c.Status.Endpoint && u.Hostname() != c.observed.vip.String() {
		common.SANs = append(common.SANs, u.Hostname()) // it is asked before it moves
	}
	return common
}

// loadPatches returns the patches of the machines of a role with some properties. A delivery reads each ConfigMap once.
func (r *configRenderer) loadPatches(ctx context.Context, c *cluster, role string, properties v1alpha1.MachineProperties) ([]talos.Patch, error) {
	if c.observed.patches == nil {
		c.observed.patches = map[v1alpha1.ObjectName][]talos.Patch{}
	}
	var all []talos.Patch
	for _, name := range plan.PatchesOf(c.KubernetesCluster, role, properties) {
		found, read := c.observed.patches[name]
		if !read {
			var err error
			if found, err = r.readPatches(ctx, c.Namespace, string(name)); err != nil {
				return nil, err
			}
			c.observed.patches[name] = found
		}
		all = append(all, found...)
	}
	return all, nil
}

func (r *configRenderer) readPatches(ctx context.Context, namespace, name string) ([]talos.Patch, error) {
	cm := &corev1.ConfigMap{}
	err := r.kube.Get(ctx, namespace, name, cm)
	if kube.NotFound(err) {
		return nil, reconcile.UserError{Reason: "PatchNotFound", Message: fmt.Sprintf("ConfigMap %s with patches does not exist: create it, or remove it from the spec. The stack checks again every minute", name)}
	}
	if err != nil {
		return nil, err
	}
	var all []talos.Patch
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		if talos.IsEmptyPatch(cm.Data[key]) {
			continue
		}
		p, err := talos.ReadPatch(fmt.Sprintf("%s of ConfigMap %s", key, name), []byte(cm.Data[key]))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
