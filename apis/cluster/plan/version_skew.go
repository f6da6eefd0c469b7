package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/versions"
)

// maxKubeletSkew is how many minor versions a kubelet may be behind the API server
// (https://kubernetes.io/releases/version-skew-policy).
const maxKubeletSkew = 3

// pinnedVersion returns the running patch release for a minor version that the cluster already
// runs, so that a new release of this function upgrades no cluster.
func pinnedVersion(wanted v1alpha1.KubernetesVersion, kc *v1alpha1.KubernetesCluster) string {
	minor := strings.TrimPrefix(string(wanted), "v")
	if strings.Count(minor, ".") == 1 && strings.HasPrefix(kc.Status.Version, minor+".") {
		return kc.Status.Version
	}
	return string(wanted)
}

// pinnedPoolVersion is pinnedVersion for a pool with a version of its own. It also returns the patch release that the nodes of
// the pool run, the newest of several, so that nothing upgrades a pool that is held at an older minor version than the control plane.
func pinnedPoolVersion(pool v1alpha1.WorkerPool, kc *v1alpha1.KubernetesCluster, machines map[string]*v1alpha1.Machine) string {
	pinned := pinnedVersion(pool.Version, kc)
	minor := strings.TrimPrefix(pinned, "v")
	if strings.Count(minor, ".") != 1 {
		return pinned
	}
	newest := ""
	for _, n := range kc.Status.Nodes {
		of, _, _ := ParseMachineName(kc.Name, n.Name)
		if m := machines[n.Name]; m != nil {
			of = PoolOf(m)
		}
		version := strings.TrimPrefix(n.Version, "v")
		if of == pool.Name && strings.HasPrefix(version, minor+".") && (newest == "" || parseVersion(version).GT(parseVersion(newest))) {
			newest = version
		}
	}
	return cmp.Or(newest, pinned)
}

// checkSkew returns a UserError for versions that nodes cannot run side by side, and for an
// upgrade that is not possible in one step.
func (p Plan) checkSkew(kc *v1alpha1.KubernetesCluster) error {
	control := parseVersion(p.Kubernetes)
	for _, m := range p.Members {
		kubelet := parseVersion(m.Version)
		switch {
		case kubelet.GT(control):
			return usererror.Error{Reason: "VersionSkew", Message: fmt.Sprintf("pool %s would run Kubernetes %s, which is newer than %s of the control plane: change the pool's version, or upgrade the control plane", m.Pool, kubelet, control)}
		case control.Minor-kubelet.Minor > maxKubeletSkew:
			return usererror.Error{Reason: "VersionSkew", Message: fmt.Sprintf("pool %s would run Kubernetes %s, which is more than %d minor versions older than %s of the control plane: upgrade the pool first", m.Pool, kubelet, maxKubeletSkew, control)}
		}
	}
	running := versions.Pair{Talos: kc.Status.TalosVersion, Kubernetes: kc.Status.Version}
	if err := versions.CheckKubernetesUpgrade(running.Kubernetes, p.Kubernetes); err != nil {
		return toUserError(err)
	}
	return toUserError(versions.CheckTalosUpgrade(running, versions.Pair{Talos: p.Talos, Kubernetes: p.Kubernetes}))
}

// JoiningVersion returns the Kubernetes version of a new node: the wanted one, unless that is
// newer than the one of the control plane.
func JoiningVersion(wanted, running string) string {
	now, err := semver.Parse(running)
	if err != nil || parseVersion(wanted).LTE(now) {
		return wanted
	}
	return running
}
