// Package versions says which versions of Kubernetes and Talos a cluster may have, and to which it can
// be upgraded in one step. It is data and rules, for the function that upgrades and for clients.
package versions

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// DefaultTalos is the Talos version of clusters that name none, unless TALOS_VERSION of
// bootstrap-talos names another.
const DefaultTalos = "1.13.9"

// patchReleases has the newest patch release of each Kubernetes minor version. Talos renders
// image tags from the version, and no image has a tag of only a minor version.
var patchReleases = map[string]string{
	"1.29": "1.29.15", "1.30": "1.30.14", "1.31": "1.31.14", "1.32": "1.32.13",
	"1.33": "1.33.13", "1.34": "1.34.13", "1.35": "1.35.10", "1.36": "1.36.6",
}

// Error says why a version is not possible, and what to write. Reason is the reason of the condition.
type Error struct{ Reason, Message string }

func (e Error) Error() string { return e.Reason + ": " + e.Message }

// ResolveKubernetes returns the newest patch release of a minor version, or a full version as it
// is, without v. A version that the Talos version does not support is an Error.
func ResolveKubernetes(wanted, talos string) (string, error) {
	version := strings.TrimPrefix(wanted, "v")
	if strings.Count(version, ".") == 1 {
		full, ok := patchReleases[version]
		if !ok {
			return "", Error{Reason: "KubernetesVersionUnknown", Message: fmt.Sprintf("no release of Kubernetes %s is known: write %s", version, supportedBy(talos))}
		}
		version = full
	}
	parsed, err := compatibility.ParseKubernetesVersion(version)
	if err != nil {
		return "", Error{Reason: "KubernetesVersionUnknown", Message: fmt.Sprintf("%q is not a Kubernetes version: write %s", wanted, supportedBy(talos))}
	}
	target, err := parseTalos(talos)
	if err != nil {
		return "", UnknownTalos(talos)
	}
	if err := parsed.SupportedWith(target); err != nil {
		return "", Error{Reason: "KubernetesVersionNotSupported", Message: fmt.Sprintf("Talos %s does not run Kubernetes %s (%v): write %s, or a Talos that runs it into spec.talos.version", talos, version, err, supportedBy(talos))}
	}
	return version, nil
}

// UnknownTalos returns the Error for a text that is not a Talos version.
func UnknownTalos(talos string) error {
	return Error{Reason: "TalosVersionUnknown", Message: fmt.Sprintf("%q is not a Talos version: write one such as %s into spec.talos.version", talos, DefaultTalos)}
}

// supportedBy returns which Kubernetes versions a Talos version supports, for a message.
func supportedBy(talos string) string {
	minors := minorsOf(talos)
	if len(minors) == 0 {
		return "a Talos version such as " + DefaultTalos + " into spec.talos.version"
	}
	first, last := minors[0], minors[len(minors)-1]
	return fmt.Sprintf("a version from %d.%d to %d.%d", first.Major, first.Minor, last.Major, last.Minor)
}

// minorsOf returns the newest patch releases that a Talos version supports, the oldest first.
func minorsOf(talos string) []semver.Version {
	var releases []semver.Version
	for _, full := range patchReleases {
		if IsSupported(talos, full) {
			releases = append(releases, semver.MustParse(full))
		}
	}
	slices.SortFunc(releases, semver.Version.Compare)
	return releases
}

// IsSupported reports whether a Talos version supports a Kubernetes version.
func IsSupported(talos, kubernetes string) bool {
	target, err := parseTalos(talos)
	if err != nil {
		return false
	}
	version, err := compatibility.ParseKubernetesVersion(kubernetes)
	return err == nil && version.SupportedWith(target) == nil
}

func parseTalos(version string) (*compatibility.TalosVersion, error) {
	return compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: "v" + strings.TrimPrefix(version, "v")})
}

// CheckKubernetesUpgrade returns an Error if an upgrade from a running Kubernetes version skips a minor
// version, or goes back to a lower one. Without a running version every other is possible.
func CheckKubernetesUpgrade(from, to string) error {
	running, err := semver.Parse(from)
	wanted, _ := semver.ParseTolerant(to)
	switch {
	case err != nil: // a new cluster runs nothing
		return nil
	case wanted.Minor < running.Minor:
		return Error{Reason: "KubernetesDowngrade", Message: fmt.Sprintf("the cluster runs Kubernetes %s, whose data %s could not read: write at least %d.%d", running, wanted, running.Major, running.Minor)}
	case wanted.Minor > running.Minor+1:
		return Error{Reason: "KubernetesUpgradePath", Message: fmt.Sprintf("the cluster runs Kubernetes %s, and no minor version may be left out on the way to %s: write %d.%d first", running, wanted, running.Major, running.Minor+1)}
	default:
		return nil
	}
}

// Pair is a Talos version and the Kubernetes version that runs on it. Each may be empty.
type Pair struct{ Talos, Kubernetes string }

// CheckTalosUpgrade returns an Error for an upgrade that the Talos installer refuses, and for one
// after which nodes run a Kubernetes version that their Talos does not support.
func CheckTalosUpgrade(from, to Pair) error {
	if from.Talos == "" || from.Talos == to.Talos {
		return nil
	}
	if err := checkInstaller(from.Talos, to.Talos); err != nil {
		return Error{Reason: "TalosUpgradePath", Message: fmt.Sprintf("Talos %s cannot be changed to %s in one step (%v): write %s", from.Talos, to.Talos, err, talosStep(from.Talos, to.Talos))}
	}
	if from.Kubernetes == "" || IsSupported(to.Talos, from.Kubernetes) || IsSupported(from.Talos, to.Kubernetes) {
		return nil
	}
	return Error{Reason: "TalosUpgradePath", Message: fmt.Sprintf("Talos %s does not run Kubernetes %s, and Talos %s does not run %s: %s", to.Talos, from.Kubernetes, from.Talos, to.Kubernetes, kubernetesStep(from, to))}
}

// talosStep says what to write into spec.talos.version instead of a version that the installer does not upgrade to: a release of the highest
// minor version on the way to which it does, if there is one.
func talosStep(from, to string) string {
	wanted, err := semver.ParseTolerant(to)
	for minor := wanted.Minor; err == nil && minor > 0; minor-- {
		step := fmt.Sprintf("%d.%d", wanted.Major, minor-1)
		if isNewer(step+".0", from) && checkInstaller(from, step+".0") == nil {
			return "a release of " + step + " into spec.talos.version first"
		}
	}
	return "another version, such as " + DefaultTalos + ", into spec.talos.version"
}

// kubernetesStep says what to do before a Talos upgrade, if one of the Talos versions does not run the present Kubernetes version, and the
// other does not run the next one.
func kubernetesStep(from, to Pair) string {
	for _, release := range minorsOf(to.Talos) {
		if version := release.String(); IsSupported(from.Talos, version) && isNewer(version, from.Kubernetes) {
			return fmt.Sprintf("keep Talos %s in spec.talos.version until the cluster runs Kubernetes %d.%d, which both run", from.Talos, release.Major, release.Minor)
		}
	}
	return "write a Talos version between them into spec.talos.version first"
}

// isNewer reports whether a version is higher than another one.
func isNewer(version, than string) bool {
	a, errA := semver.ParseTolerant(version)
	b, errB := semver.ParseTolerant(than)
	return errA == nil && errB == nil && a.GT(b)
}

// checkInstaller returns an error unless the installer of a Talos version upgrades from
// another one.
func checkInstaller(from, to string) error {
	host, err := parseTalos(from)
	if err != nil {
		return err
	}
	target, err := parseTalos(to)
	if err != nil {
		return err
	}
	return target.UpgradeableFrom(host)
}

// Upgrades returns the Kubernetes versions to which a cluster can be upgraded in one step: the newest
// patch release of the running minor version, and of the next one, if the Talos version supports
// them. It is empty for a cluster that runs the newest. A cluster that does not run yet, whose Kubernetes version is empty,
// can have any that the Talos version supports.
func Upgrades(running Pair) []string {
	isNew := running.Kubernetes == ""
	now, err := semver.Parse(running.Kubernetes)
	if err != nil && !isNew {
		return nil
	}
	var possible []string
	for _, release := range minorsOf(running.Talos) {
		if isNew || release.GT(now) && CheckKubernetesUpgrade(running.Kubernetes, release.String()) == nil {
			possible = append(possible, release.String())
		}
	}
	return possible
}

// IsReleased reports whether a full Kubernetes version is known to be released: each patch release up to
// the newest known one of its minor version is. A higher one may have been released later.
func IsReleased(kubernetes string) bool {
	version, err := semver.ParseTolerant(kubernetes)
	newest, known := patchReleases[fmt.Sprintf("%d.%d", version.Major, version.Minor)]
	return err == nil && known && version.LTE(semver.MustParse(newest))
}

// Unreleased returns the Error for a full Kubernetes version whose image a node does not find.
func Unreleased(kubernetes, image string) Error {
	version, _ := semver.ParseTolerant(kubernetes)
	minor := fmt.Sprintf("%d.%d", version.Major, version.Minor)
	return Error{Reason: "KubernetesVersionUnknown", Message: fmt.Sprintf(
		"Kubernetes %s does not exist, because image %s is not found: write %s, or a release from %s.0 to %s", version, image, minor, minor, patchReleases[minor])}
}

// Newest returns the newest Kubernetes version that a Talos version supports, or nothing if it
// supports none that is known.
func Newest(talos string) string {
	releases := minorsOf(talos)
	if len(releases) == 0 {
		return ""
	}
	return releases[len(releases)-1].String()
}
