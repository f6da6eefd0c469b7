// Package upgrade computes how the versions of a cluster are changed: which are possible, and which
// fields have to be written. It has no client.
package upgrade

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/versions"
)

// Request is what a user wants. An empty version stays as it is.
type Request struct{ Kubernetes, Talos string }

// Change is an operation of a JSON patch (RFC 6902).
type Change struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Running returns the versions that a cluster runs. A cluster that does not run yet has no Kubernetes version, and the Talos version
// that its nodes will have, unless the installation has another default.
func Running(k *v1alpha1.KubernetesCluster) versions.Pair {
	if k.Status.Version != "" {
		return versions.Pair{Talos: k.Status.TalosVersion, Kubernetes: k.Status.Version}
	}
	talos := k.Status.TalosVersion
	if k.Spec.Talos != nil {
		talos = cmp.Or(strings.TrimPrefix(k.Spec.Talos.Version, "v"), talos)
	}
	return versions.Pair{Talos: cmp.Or(talos, versions.DefaultTalos)}
}

// Plan returns the versions that a cluster runs after a request, and the changes of its spec, by the
// rules of bootstrap-talos. It returns an error with what to write if the request is not possible in
// one step. The versions of the control plane and of pools that have their own are changed too,
// because topology.version has no effect on them. A cluster that does not run yet can have any version that its Talos version supports.
func Plan(k *v1alpha1.KubernetesCluster, r Request) (versions.Pair, []Change, error) {
	running := Running(k)
	wanted := versions.Pair{Talos: cmp.Or(strings.TrimPrefix(r.Talos, "v"), running.Talos), Kubernetes: running.Kubernetes}
	if request := cmp.Or(r.Kubernetes, newVersion(k)); request != "" {
		full, err := versions.ResolveKubernetes(request, wanted.Talos)
		if err != nil {
			return versions.Pair{}, nil, message(err)
		}
		wanted.Kubernetes = full
	}
	if running.Kubernetes != "" {
		if err := errors.Join(versions.CheckKubernetesUpgrade(running.Kubernetes, wanted.Kubernetes), versions.CheckTalosUpgrade(running, wanted)); err != nil {
			return versions.Pair{}, nil, message(err)
		}
	}
	var changes []Change
	if r.Kubernetes != "" {
		changes = kubernetesChanges(k, versionToWrite(r.Kubernetes, wanted.Kubernetes, running.Kubernetes))
	}
	if r.Talos != "" && (k.Spec.Talos == nil || strings.TrimPrefix(k.Spec.Talos.Version, "v") != wanted.Talos) {
		if k.Spec.Talos == nil {
			changes = append(changes, Change{"add", "/spec/talos", map[string]any{"version": wanted.Talos}})
		} else {
			changes = append(changes, Change{"add", "/spec/talos/version", wanted.Talos})
		}
	}
	return wanted, changes, nil
}

// newVersion returns the Kubernetes version in the spec of a cluster that does not run yet, and nothing for one that runs.
func newVersion(k *v1alpha1.KubernetesCluster) string {
	if k.Status.Version != "" {
		return ""
	}
	return string(cmp.Or(k.Spec.Topology.ControlPlane.Version, k.Spec.Topology.Version))
}

// message returns an error of package versions without its reason.
func message(err error) error {
	var impossible versions.Error
	if errors.As(err, &impossible) {
		return errors.New(impossible.Message)
	}
	return err
}

// versionToWrite returns the version for the spec: as the user wrote it, unless a minor version would
// mean the patch release that runs already.
func versionToWrite(written, full, running string) string {
	written = strings.TrimPrefix(written, "v")
	if strings.Count(written, ".") == 1 && strings.HasPrefix(running, written+".") {
		return full
	}
	return written
}

func kubernetesChanges(k *v1alpha1.KubernetesCluster, version string) []Change {
	var changes []Change
	set := func(path string, now v1alpha1.KubernetesVersion) {
		if string(now) != version {
			changes = append(changes, Change{"replace", path, version})
		}
	}
	t := k.Spec.Topology
	set("/spec/topology/version", t.Version)
	if t.ControlPlane.Version != "" {
		set("/spec/topology/controlplane/version", t.ControlPlane.Version)
	}
	for i, pool := range t.Workers {
		if pool.Version == "" || string(pool.Version) == version {
			continue
		}
		path := fmt.Sprintf("/spec/topology/workers/%d", i)
		changes = append(changes, Change{"test", path + "/name", pool.Name}, Change{"replace", path + "/version", version})
	}
	return changes
}
