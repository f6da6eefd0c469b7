package proxmox

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// oneHost is the only access mode of disks on Proxmox VE.
const oneHost v1alpha1.DiskAccessMode = "ReadWriteOnce"

// checkSupported returns a UserError for a spec that Proxmox VE cannot express.
func checkSupported(m *v1alpha1.Machine) error {
	if d := m.Spec.Domain; d != nil && d.Features != nil && d.Features.APIC != nil && !*d.Features.APIC {
		return reconcile.UserError{Reason: "NotSupported", Message: "Proxmox VE cannot switch the APIC off: leave out spec.domain.features.apic"}
	}
	if m.Spec.OS != nil && m.Spec.OS.ISOURI != "" && !isInstaller(m.Spec.OS.ISOURI) {
		return reconcile.UserError{Reason: "NotSupported", Message: "Proxmox VE boots installers from its storages: write a volume such as local:iso/talos.iso into spec.os.isoUri"}
	}
	for _, d := range m.Spec.Disks {
		if d.AccessMode != "" && d.AccessMode != oneHost {
			return reconcile.UserError{Reason: "NotSupported", Message: fmt.Sprintf("Proxmox VE gives a disk to one machine: leave out accessMode of disk %s, or write %s", d.Name, oneHost)}
		}
	}
	return nil
}

// checkSnippet returns a UserError for a snippet that the platform team has not listed,
// because the snippets of a storage may belong to other tenants.
func (s settings) checkSnippet(userData string) error {
	name := strings.TrimSpace(userData)
	if !snippet.MatchString(name) || slices.Contains(s.options.AllowedSnippets, name) {
		return nil
	}
	return reconcile.UserError{Reason: "SnippetNotAllowed", Message: fmt.Sprintf("snippet %s is not in spec.proxmox.allowedSnippets of the MachineProvider: write the user data into spec.cloudInit.userData, or ask the platform team to add the snippet", name)}
}

var installer = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*:iso/[A-Za-z0-9][A-Za-z0-9._+-]*\.(?:iso|img|ISO|IMG)$`)

// isInstaller reports whether text names a volume that every tenant may use: no device or
// disk, no further options, and no CD with the first configuration of a machine, which
// contains keys.
func isInstaller(text string) bool {
	return installer.MatchString(text) && !strings.Contains(text, ":iso/"+cdPrefix)
}
