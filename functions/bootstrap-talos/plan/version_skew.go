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

// pinnedVersion is the version that a minor version means in a cluster that runs one: the
// patch release it has, so that a new release of this function changes no cluster.
func pinnedVersion(wanted v1alpha1.KubernetesVersion, kc *v1alpha1.KubernetesCluster) string {
	minor := strings.TrimPrefix(string(wanted), "v")
	if strings.Count(minor, ".") == 1 && strings.HasPrefix(kc.Status.Version, minor+".") {
		return kc.Status.Version
	}
	return string(wanted)
}

// checkSkew refuses versions that nodes cannot have beside each other, and those
// that a running cluster cannot be brought to in one step.
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

// checkKubernetesPath refuses to leave out a minor version, and to go back to one.
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

// checkTalosPath refuses a change of Talos that its installer would refuse, and one
// that leaves nodes with a Kubernetes that their Talos does not run.
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

// checkTalosUpgrade asks the rules of a Talos version's installer whether it may take the
// place of another version.
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

// JoiningVersion is the Kubernetes version that a new node gets: the wanted one, but none
// newer than the control plane has now.
func JoiningVersion(wanted, running string) string {
	now, err := semver.Parse(running)
	if err != nil || parseVersion(wanted).LTE(now) {
		return wanted
	}
	return running
}
