package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
)

// patchReleases is the newest patch release of each Kubernetes minor version.
// Talos renders image tags from the version, so a minor alone would name images
// that nobody publishes.
var patchReleases = map[string]string{
	"1.29": "1.29.15", "1.30": "1.30.14", "1.31": "1.31.14", "1.32": "1.32.13",
	"1.33": "1.33.13", "1.34": "1.34.13", "1.35": "1.35.10", "1.36": "1.36.6",
}

// versions are the versions of a cluster.
type versions struct {
	// kubernetes and talos are full versions without v.
	kubernetes, talos string
	// contract is the dialect of machine configuration that the Talos version speaks.
	contract *config.VersionContract
}

// resolveKubernetes turns a minor version into its newest patch release, and
// checks that the Talos version supports it.
func resolveKubernetes(wanted, talos string) (string, error) {
	version := strings.TrimPrefix(wanted, "v")
	if strings.Count(version, ".") == 1 {
		full, ok := patchReleases[version]
		if !ok {
			return "", fault{"KubernetesVersionUnknown", fmt.Sprintf("no release of Kubernetes %s is known: write %s", version, supportedBy(talos))}
		}
		version = full
	}
	parsed, err := compatibility.ParseKubernetesVersion(version)
	if err != nil {
		return "", fault{"KubernetesVersionUnknown", fmt.Sprintf("%q is not a Kubernetes version: write %s", wanted, supportedBy(talos))}
	}
	target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: "v" + talos})
	if err != nil {
		return "", fault{"TalosVersionUnknown", fmt.Sprintf("%q is not a Talos version: write one such as %s into spec.talos.version", talos, defaultTalos)}
	}
	if err := parsed.SupportedWith(target); err != nil {
		return "", fault{"KubernetesVersionNotSupported", fmt.Sprintf("Talos %s does not run Kubernetes %s (%v): write %s, or a Talos that runs it into spec.talos.version", talos, version, err, supportedBy(talos))}
	}
	return version, nil
}

// supportedBy says which Kubernetes versions a Talos version runs, for a message.
func supportedBy(talos string) string {
	var minors []semver.Version
	for minor, full := range patchReleases {
		if supports(talos, full) {
			minors = append(minors, release(minor))
		}
	}
	if len(minors) == 0 {
		return "a Talos version such as " + defaultTalos + " into spec.talos.version"
	}
	slices.SortFunc(minors, semver.Version.Compare)
	first, last := minors[0], minors[len(minors)-1]
	return fmt.Sprintf("a version from %d.%d to %d.%d", first.Major, first.Minor, last.Major, last.Minor)
}

// resolveVersions works out the versions of a cluster. fallback is the Talos
// version of a cluster that names none.
func resolveVersions(kubernetes, talos, fallback string) (versions, error) {
	v := versions{talos: strings.TrimPrefix(talos, "v")}
	if v.talos == "" {
		v.talos = strings.TrimPrefix(fallback, "v")
	}
	var err error
	if v.contract, err = config.ParseContractFromVersion("v" + v.talos); err != nil {
		return versions{}, fault{"TalosVersionUnknown", fmt.Sprintf("%q is not a Talos version: write one such as %s into spec.talos.version", v.talos, defaultTalos)}
	}
	v.kubernetes, err = resolveKubernetes(kubernetes, v.talos)
	return v, err
}
