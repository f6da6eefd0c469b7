package proxmox

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// tagManaged is on every virtual machine of the stack.
const tagManaged = "vitistack"

// notInTags matches what a tag of Proxmox VE may not contain.
var notInTags = regexp.MustCompile(`[^a-z0-9_.+-]+`)

// tag returns a tag of Proxmox VE with the name of an object of a kind.
func tag(kind, name string) string {
	return kind + "-" + notInTags.ReplaceAllString(strings.ToLower(name), "-")
}

// uidTag returns the tag that identifies the virtual machine of a machine.
func uidTag(m *v1alpha1.Machine) string { return tag("uid", string(m.UID)) }

// formerTag returns the tag of a virtual machine that was adopted from a Machine with a UID. It keeps that
// Machine's deletion from deleting the CD, whose name has the UID.
func formerTag(uid string) string { return tag("former", uid) }

// machineTags returns all tags of a virtual machine, as its option.
func machineTags(m *v1alpha1.Machine) string {
	tags := []string{tagManaged, uidTag(m)}
	for _, uid := range v1alpha1.FormerUIDs(m) {
		if v1alpha1.HadUID(m, uid) {
			tags = append(tags, formerTag(uid))
		}
	}
	if name := m.Labels[v1alpha1.LabelClusterName]; name != "" {
		tags = append(tags, tag("cluster", name), tag("role", m.Labels[v1alpha1.LabelClusterRole]))
	}
	slices.Sort(tags)
	return strings.Join(tags, ";")
}

// splitTags returns the tags in the option of a virtual machine.
func splitTags(tags string) []string {
	return strings.FieldsFunc(tags, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
}

// protectedLine in a description says that the spec of the Machine has requested the protection, so it
// ends with spec.protected.
const protectedLine = "protected by spec.protected"

// uidLine returns the line of a description with the UID of a machine. A clone and a virtual machine in a pool have no tags at first.
func uidLine(m *v1alpha1.Machine) string { return "uid: " + string(m.UID) }

// machineDescription returns the description of a machine's virtual machine.
func machineDescription(m *v1alpha1.Machine) string {
	lines := []string{"Machine " + m.Namespace + "/" + m.Name, uidLine(m)}
	if m.Spec.Protected {
		lines = append(lines, protectedLine)
	}
	return strings.Join(lines, "\n") + "\n"
}

// hostname returns a machine's name as one label of DNS. It is the name of the virtual
// machine, which Proxmox VE and cloud-init would cut at its first dot for the guest.
func hostname(m *v1alpha1.Machine) string {
	const longest = 63
	name := strings.ReplaceAll(m.Name, ".", "-")
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(m.Name))
	hash := fmt.Sprintf("-%x", sum[:4])
	return name[:longest-len(hash)] + hash
}

// ownerUID returns the UID of the Machine of a virtual machine with these tags. It is empty if the
// stack has not created the virtual machine.
func ownerUID(tags []string) (uid string) {
	managed := false
	for _, t := range tags {
		if rest, ok := strings.CutPrefix(t, "uid-"); ok {
			uid = rest
		}
		managed = managed || t == tagManaged
	}
	if !managed {
		return ""
	}
	return uid
}

// isAdoptable reports whether tags or a description have a former UID of a machine, and not its own.
func isAdoptable(m *v1alpha1.Machine, tags []string, description string) bool {
	if slices.Contains(tags, uidTag(m)) || strings.Contains(description, uidLine(m)) {
		return false
	}
	return slices.ContainsFunc(v1alpha1.FormerUIDs(m), func(uid string) bool {
		return v1alpha1.HadUID(m, uid) && (slices.Contains(tags, tag("uid", uid)) || strings.Contains(description, "uid: "+uid))
	})
}
