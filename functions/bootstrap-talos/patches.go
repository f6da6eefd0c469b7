package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

// patch is a change of configurations that somebody has written.
type patch struct {
	// from says where it is, for people.
	from string
	configpatcher.Patch
}

// patchesOf are the ConfigMaps with the patches of a member, in their order.
func patchesOf(kc *v1alpha1.KubernetesCluster, m member) []v1alpha1.ObjectName {
	var names []v1alpha1.ObjectName
	if kc.Spec.Talos != nil && kc.Spec.Talos.Patches != nil {
		p := kc.Spec.Talos.Patches
		names = append(names, p.All...)
		names = append(names, pick(m.role == v1alpha1.RoleControlPlane, p.ControlPlane, p.Workers)...)
	}
	return append(names, m.properties.Patches...)
}

// loadPatches reads the patches of a member. A ConfigMap is read once for all.
func (f *function) loadPatches(ctx context.Context, c *cluster, m member) ([]patch, error) {
	if c.patches == nil {
		c.patches = map[v1alpha1.ObjectName][]patch{}
	}
	var all []patch
	for _, name := range patchesOf(c.KubernetesCluster, m) {
		found, read := c.patches[name]
		if !read {
			var err error
			if found, err = f.readPatches(ctx, c.Namespace, string(name)); err != nil {
				return nil, err
			}
			c.patches[name] = found
		}
		all = append(all, found...)
	}
	return all, nil
}

func (f *function) readPatches(ctx context.Context, namespace, name string) ([]patch, error) {
	cm := &corev1.ConfigMap{}
	err := f.kube.Get(ctx, namespace, name, cm)
	if kube.NotFound(err) {
		return nil, fault{"PatchNotFound", fmt.Sprintf("ConfigMap %s with patches does not exist: create it, or take it out of the spec", name)}
	}
	if err != nil {
		return nil, err
	}
	var all []patch
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		p, err := readPatch(fmt.Sprintf("%s of ConfigMap %s", key, name), []byte(cm.Data[key]))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// readPatch reads what somebody has written. A document that would become many times
// as large is refused by the YAML library.
func readPatch(from string, text []byte) (patch, error) {
	loaded, err := configpatcher.LoadPatch(text)
	if err != nil {
		return patch{}, fault{"InvalidPatch", fmt.Sprintf("%s is no patch of a machine configuration: %v", from, err)}
	}
	if _, merges := loaded.(configpatcher.StrategicMergePatch); !merges {
		return patch{}, fault{"InvalidPatch", from + " is a JSON patch, which a configuration of several documents cannot take: write the fields to change as YAML"}
	}
	return patch{from: from, Patch: loaded}, nil
}

// apply changes a configuration as somebody wrote, and refuses what would make a
// node another one: its role, its cluster or its name.
func (p patch) apply(before config.Provider, hostname string) (config.Provider, error) {
	out, err := configpatcher.Apply(configpatcher.WithConfig(before), []configpatcher.Patch{p.Patch})
	if err != nil {
		return nil, fault{"InvalidPatch", fmt.Sprintf("%s cannot be applied: %v", p.from, err)}
	}
	after, err := out.Config()
	if err != nil {
		return nil, fault{"InvalidPatch", fmt.Sprintf("%s cannot be applied: %v", p.from, err)}
	}
	named := after.NetworkHostnameConfig()
	switch {
	case after.Machine() == nil || after.Cluster() == nil || after.Machine().Type() != before.Machine().Type():
		return nil, fault{"InvalidPatch", p.from + " changes machine.type, which the pool determines: take it out"}
	case after.Machine().Security().Token() != before.Machine().Security().Token(), after.Cluster().ID() != before.Cluster().ID():
		return nil, fault{"InvalidPatch", p.from + " changes the keys of the cluster, which would cut the node off: take them out"}
	case named == nil || named.Hostname() != hostname:
		return nil, fault{"InvalidPatch", p.from + " changes the host name, by which the node is known: take it out"}
	}
	return after, nil
}
