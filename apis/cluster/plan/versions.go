package plan

import (
	"errors"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/versions"
)

// DefaultTalosVersion is the Talos version of clusters that name none, unless TALOS_VERSION
// names another.
const DefaultTalosVersion = versions.DefaultTalos

// Versions are the versions of a cluster.
type Versions struct {
	// Kubernetes and Talos are full versions without v.
	Kubernetes, Talos string
	// Contract says which features the machine configuration of the Talos version has.
	Contract *config.VersionContract
}

// toUserError returns an error of package versions as a UserError, and any other unchanged.
func toUserError(err error) error {
	var impossible versions.Error
	if errors.As(err, &impossible) {
		return usererror.Error{Reason: impossible.Reason, Message: impossible.Message}
	}
	return err
}

// resolveKubernetes returns the newest patch release of a minor version, or a full version as it
// is. A version that the Talos version does not support is a UserError.
func resolveKubernetes(wanted, talos string) (string, error) {
	version, err := versions.ResolveKubernetes(wanted, talos)
	return version, toUserError(err)
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
		return Versions{}, toUserError(versions.UnknownTalos(v.Talos))
	}
	v.Kubernetes, err = resolveKubernetes(kubernetes, v.Talos)
	return v, err
}

// parseVersion parses a version that resolveKubernetes has accepted.
func parseVersion(version string) semver.Version {
	v, _ := semver.ParseTolerant(version)
	return v
}
