package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// DefaultTalosVersion is the Talos version of clusters that name none, unless TALOS_VERSION
// names another.
const DefaultTalosVersion = "1.13.9"

// patchReleases has the newest patch release of each Kubernetes minor version. Talos renders
// image tags from the version, and no image has a tag of only a minor version.
var patchReleases = map[string]string{
	"1.29": "1.29.15", "1.30": "1.30.14", "1.31": "1.31.14", "1.32": "1.32.13",
	"1.33": "1.33.13", "1.34": "1.34.13", "1.35": "1.35.10", "1.36": "1.36.6",
}

// Versions are the versions of a cluster.
type Versions struct {
	// Kubernetes and Talos are full versions without v.
	Kubernetes, Talos string
	// Contract says which features the machine configuration of the Talos version has.
	Contract *config.VersionContract
}

// resolveKubernetes returns the newest patch release of a minor version, or a full version as it
// is. A version that the Talos version does not support is a UserError.
func resolveKubernetes(wanted, talos string) (string, error) {
	version := strings.TrimPrefix(wanted, "v")
	if strings.Count(version, ".") == 1 {
		full, ok := patchReleases[version]
		if !ok {
			return "", reconcile.UserError{Reason: "KubernetesVersionUnknown", Message: fmt.Sprintf("no release of Kubernetes %s is known: write %s", version, supportedBy(talos))}
		}
		version = full
	}
	parsed, err := compatibility.ParseKubernetesVersion(version)
	if err != nil {
		return "", reconcile.UserError{Reason: "KubernetesVersionUnknown", Message: fmt.Sprintf("%q is not a Kubernetes version: write %s", wanted, supportedBy(talos))}
	}
	target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: "v" + talos})
	if err != nil {
		return "", reconcile.UserError{Reason: "TalosVersionUnknown", Message: fmt.Sprintf("%q is not a Talos version: write one such as %s into spec.talos.version", talos, DefaultTalosVersion)}
	}
	if err := parsed.SupportedWith(target); err != nil {
		return "", reconcile.UserError{Reason: "KubernetesVersionNotSupported", Message: fmt.Sprintf("Talos %s does not run Kubernetes %s (%v): write %s, or a Talos that runs it into spec.talos.version", talos, version, err, supportedBy(talos))}
	}
	return version, nil
}

// supportedBy returns which Kubernetes versions a Talos version supports, for a message.
func supportedBy(talos string) string {
	var minors []semver.Version
	for minor, full := range patchReleases {
		if isSupported(talos, full) {
			minors = append(minors, parseVersion(minor))
		}
	}
	if len(minors) == 0 {
		return "a Talos version such as " + DefaultTalosVersion + " into spec.talos.version"
	}
	slices.SortFunc(minors, semver.Version.Compare)
	first, last := minors[0], minors[len(minors)-1]
	return fmt.Sprintf("a version from %d.%d to %d.%d", first.Major, first.Minor, last.Major, last.Minor)
}

// resolveVersions returns the versions of a cluster. fallback is the Talos version of a cluster
// that names none.
func resolveVersions(kubernetes, talos, fallback string) (Versions, error) {
	v := Versions{Talos: strings.TrimPrefix(talos, "v")}
	if v.Talos == "" {
		v.Talos = strings.TrimPrefix(fallback, "v")
	}
	var err error
	if v.Contract, err = config.ParseContractFromVersion("v" + v.Talos); err != nil {
		return Versions{}, reconcile.UserError{Reason: "TalosVersionUnknown", Message: fmt.Sprintf("%q is not a Talos version: write one such as %s into spec.talos.version", v.Talos, DefaultTalosVersion)}
	}
	v.Kubernetes, err = resolveKubernetes(kubernetes, v.Talos)
	return v, err
}

// isSupported reports whether a Talos version supports a Kubernetes version.
func isSupported(talos, kubernetes string) bool {
	target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: "v" + talos})
	if err != nil {
		return false
	}
	version, err := compatibility.ParseKubernetesVersion(kubernetes)
	return err == nil && version.SupportedWith(target) == nil
}

// parseVersion parses a version that resolveKubernetes has accepted.
func parseVersion(version string) semver.Version {
	v, _ := semver.ParseTolerant(version)
	return v
}
