package nodeconfig

import (
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// Installed is what a node has, whatever its configuration says.
type Installed struct {
	// Encrypted are the system volumes that are encrypted.
	Encrypted []string
	// EphemeralSize is the size of EPHEMERAL in bytes.
	EphemeralSize uint64
	// KernelArguments is the command line of the kernel.
	KernelArguments []string
}

// Missing returns the parts of the configuration of a node that the node does not have, because Talos has accepted and
// ignored them. The size of a volume that is relative to its disk, and the volumes and disks of users, are not compared.
func (i Installed) Missing(cfg config.Provider) []string {
	var missing []string
	for _, volume := range systemVolumes {
		if encryptionOf(cfg, volume) != nil && !slices.Contains(i.Encrypted, volume) {
			missing = append(missing, encryptionPart(volume))
		}
	}
	document, _ := cfg.Volumes().ByName(constants.EphemeralPartitionLabel)
	p := document.Provisioning()
	isTooLarge := !p.RelativeMaxSize().IsPresent() && !p.MaxSizeNegative() && p.MaxSize().IsPresent() && i.EphemeralSize > p.MaxSize().ValueOrZero()
	if isTooLarge || i.EphemeralSize < p.MinSize().ValueOrZero() {
		missing = append(missing, volumePart(constants.EphemeralPartitionLabel))
	}
	if cfg.Machine() != nil && slices.ContainsFunc(cfg.Machine().Install().ExtraKernelArgs(), i.lacksArgument) {
		missing = append(missing, kernelArguments)
	}
	return missing
}

// lacksArgument reports whether the kernel was booted without an argument of extraKernelArgs. One with a leading - removes
// the argument of that name.
func (i Installed) lacksArgument(arg string) bool {
	name, removes := strings.CutPrefix(arg, "-")
	if !removes {
		return !slices.Contains(i.KernelArguments, arg)
	}
	return slices.ContainsFunc(i.KernelArguments, func(a string) bool { return a == name || strings.HasPrefix(a, name+"=") })
}
