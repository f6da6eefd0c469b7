package plan

import (
	"fmt"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
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

// checkSkew returns a UserError for versions that nodes cannot run side by side, and for an
// upgrade that is not possible in one step.
func (p Plan) checkSkew(kc *v1alpha1.KubernetesCluster) error {
	control := parseVersion(p.Kubernetes)
	for _, m := range p.Members {
		kubelet := parseVersion(m.Version)
		switch {
		case kubelet.GT(control):
			return reconcile.UserError{Reason: "VersionSkew", Message: fmt.Sprintf("pool %s would run Kubernetes %s, which is newer than %s of the control plane: change the pool's version, or upgrade the control plane", m.Pool, kubelet, control)}
		case control.Minor-kubelet.Minor > maxKubeletSkew:
			return reconcile.UserError{Reason: "VersionSkew", Message: fmt.Sprintf("pool %s would run Kubernetes %s, which is more than %d minor versions older than %s of the control plane: upgrade the pool first", m.Pool, kubelet, maxKubeletSkew, control)}
		}
	}
	if err := checkKubernetesPath(kc.Status.Version, control); err != nil {
		return err
	}
	return checkTalosPath(kc, p)
}

// checkKubernetesPath returns a UserError if a minor version is skipped or lower than the
// running one.
func checkKubernetesPath(from string, to semver.Version) error {
	running, err := semver.Parse(from)
	switch {
	case err != nil: // a new cluster runs nothing
		return nil
	case to.Minor < running.Minor:
		return reconcile.UserError{Reason: "KubernetesDowngrade", Message: fmt.Sprintf("the cluster runs Kubernetes %s, whose data %s could not read: write at least %d.%d", running, to, running.Major, running.Minor)}
	case to.Minor > running.Minor+1:
		return reconcile.UserError{Reason: "KubernetesUpgradePath", Message: fmt.Sprintf("the cluster runs Kubernetes %s, and no minor version may be left out on the way to %s: write %d.%d first", running, to, running.Major, running.Minor+1)}
	default:
		return nil
	}
}

// checkTalosPath returns a UserError for an upgrade that the Talos installer refuses, and for
// one after which nodes run a Kubernetes version that their Talos does not support.
func checkTalosPath(kc *v1alpha1.KubernetesCluster, p Plan) error {
	from := kc.Status.TalosVersion
	if from == "" || from == p.Talos {
		return nil
	}
	if err := checkTalosUpgrade(from, p.Talos); err != nil {
		return reconcile.UserError{Reason: "TalosUpgradePath", Message: fmt.Sprintf("Talos %s cannot be changed to %s in one step (%v): write another version into spec.talos.version first", from, p.Talos, err)}
	}
	running := kc.Status.Version
	if running == "" || isSupported(p.Talos, running) || isSupported(from, p.Kubernetes) {
		return nil
	}
	return reconcile.UserError{Reason: "TalosUpgradePath", Message: fmt.Sprintf("Talos %s does not run Kubernetes %s, and Talos %s does not run %s: go to a Kubernetes version first that both run", p.Talos, running, from, p.Kubernetes)}
}

// checkTalosUpgrade returns an error unless the installer of a Talos version upgrades from
// another one.
func checkTalosUpgrade(from, to string) error {
	host, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: "v" + from})
	if err != nil {
		return err
	}
	target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: "v" + to})
	if err != nil {
		return err
	}
	return target.UpgradeableFrom(host)
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
