// Package nodeconfig decides what a changed machine configuration means for a node that is installed. Talos
// provisions and encrypts volumes, and sets the arguments of the kernel, when it installs a node. It ignores a later
// change of these parts, or fails to boot with it:
//
//	changed part                                   Talos v1.13.9, internal/app/machined/pkg/controllers/block/internal/volumes
//	encryption of STATE or EPHEMERAL               no longer starts: HandleEncryptionWithHandler (encrypt.go), Format (format.go)
//	provisioning of EPHEMERAL                      ignored: a located volume is not provisioned again (locate.go)
//	a user, raw or swap volume that exists         ignored, likewise; a failed volume with another encryption
//	a disk of machine.disks with partitions        ignored, likewise (controllers/block/user_disk_config.go)
//	machine.install.extraKernelArgs                ignored: nodes boot disk images, which nothing installs (v1alpha1_sequencer.go)
//	a higher maxSize of a volume that grows        applied at the next boot (grow.go)
//	cluster.etcd                                   applied when etcd starts, at the next boot (system/services/etcd.go)
//	another user, raw or swap volume, or disk      applied to a running node, or at the next boot
//
// Fields that only choose where a node is installed (machine.install.disk, diskSelector and wipe) are not parts: they
// count for nodes that are installed afterwards. All other changes are applied to a running node, or Talos refuses
// them without a reboot (CanApplyImmediate in runtime/v1alpha1/v1alpha1_runtime.go).
package nodeconfig

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	documents "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// Parts are the parts of a machine configuration that Talos applies to a new node only, by name, each with a digest
// without secrets. A part that has its default is missing.
type Parts map[string]string

// kernelArguments is the name of a part.
const kernelArguments = "kernel arguments"

func encryptionPart(volume string) string { return "encryption of " + volume }
func volumePart(volume string) string     { return "volume " + volume }

// systemVolumes are the volumes that every node has.
var systemVolumes = []string{constants.StatePartitionLabel, constants.EphemeralPartitionLabel}

// Parse returns the parts that String has encoded, and false for a text that has none.
func Parse(text string) (Parts, bool) {
	var p Parts
	if err := json.Unmarshal([]byte(text), &p); err != nil || p == nil {
		return nil, false
	}
	return p, true
}

// String encodes the parts for an annotation.
func (p Parts) String() string {
	if p == nil {
		p = Parts{}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return "{}" // a map of strings can always be encoded
	}
	return string(text)
}

// Change is what a running node needs for a changed configuration.
type Change struct {
	// NewNode are the parts that only a new node gets, and AtReboot the parts that are applied at the next boot.
	NewNode, AtReboot []string
}

// Compare returns what a node with the parts p needs to get others:
//
//	the same                                             nothing
//	a volume or disk of users that is new, or is gone    nothing
//	other arguments of the kernel                        nothing: a new node would not have them either, and they are refused
//	a volume that may grow further                       a boot
//	otherwise                                            a new node
func (p Parts) Compare(wanted Parts) Change {
	var change Change
	names := maps.Clone(p)
	if names == nil {
		names = Parts{}
	}
	maps.Copy(names, wanted)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		has, wants := p[name], wanted[name]
		if name == volumePart(constants.EphemeralPartitionLabel) {
			has, wants = cmp.Or(has, defaultEphemeral), cmp.Or(wants, defaultEphemeral)
		}
		switch {
		case has == wants, (has == "" || wants == "") && isOptional(name), name == kernelArguments && wants != "":
		case mayGrow(has, wants):
			change.AtReboot = append(change.AtReboot, name)
		default:
			change.NewNode = append(change.NewNode, name)
		}
	}
	return change
}

// Without returns the parts without those of some names.
func (p Parts) Without(names ...string) Parts {
	kept := maps.Clone(p)
	for _, name := range names {
		delete(kept, name)
	}
	return kept
}

// WithInstalled returns the parts with what an installed node keeps of earlier, whatever its configuration says: the encryption of the system
// volumes, the arguments of the kernel, and EPHEMERAL unless it may grow.
func (p Parts) WithInstalled(earlier Parts) Parts {
	merged := maps.Clone(p)
	for _, name := range fixedParts {
		if name == volumePart(constants.EphemeralPartitionLabel) && mayGrow(cmp.Or(earlier[name], defaultEphemeral), cmp.Or(p[name], defaultEphemeral)) {
			continue
		}
		delete(merged, name)
		if has, known := earlier[name]; known {
			merged[name] = has
		}
	}
	return merged
}

// AddsKernelArguments reports whether a configuration has arguments of the kernel that a node with the parts p was not
// installed with.
func (p Parts) AddsKernelArguments(cfg config.Provider) bool {
	wants := Read(cfg)[kernelArguments]
	return wants != "" && wants != p[kernelArguments]
}

// HasKernelArguments reports whether the parts have arguments of the kernel.
func (p Parts) HasKernelArguments() bool { return p[kernelArguments] != "" }

// isOptional reports whether a part is about a volume or disk that Talos creates and unmounts on an installed node.
func isOptional(name string) bool {
	return !slices.Contains(fixedParts, name)
}

var fixedParts = []string{
	encryptionPart(constants.StatePartitionLabel), encryptionPart(constants.EphemeralPartitionLabel),
	volumePart(constants.EphemeralPartitionLabel), kernelArguments,
}

// Read returns the parts of a machine configuration.
func Read(cfg config.Provider) Parts {
	p := Parts{}
	for _, name := range systemVolumes {
		document, _ := cfg.Volumes().ByName(name)
		if e := encryptionOf(cfg, name); e != nil {
			p[encryptionPart(name)] = digest(describeEncryption(e))
		}
		if name == constants.EphemeralPartitionLabel {
			if v := volumeDigest(document.Provisioning(), true); v != defaultEphemeral {
				p[volumePart(name)] = v
			}
		}
	}
	for _, v := range cfg.UserVolumeConfigs() {
		kind := v.Type().ValueOr(block.VolumeTypePartition).String()
		p["user "+volumePart(v.Name())] = volumeDigest(v.Provisioning(), false, kind, v.Filesystem().Type().String(), describeEncryption(v.Encryption()))
	}
	for _, v := range cfg.RawVolumeConfigs() {
		p["raw "+volumePart(v.Name())] = volumeDigest(v.Provisioning(), false, describeEncryption(v.Encryption()))
	}
	for _, v := range cfg.SwapVolumeConfigs() {
		p["swap "+volumePart(v.Name())] = volumeDigest(v.Provisioning(), false, describeEncryption(v.Encryption()))
	}
	if m := cfg.Machine(); m != nil {
		for _, d := range m.Disks() {
			p["disk "+d.Device()] = digest(describePartitions(d)...)
		}
		if args := m.Install().ExtraKernelArgs(); len(args) > 0 {
			p[kernelArguments] = digest(args...)
		}
	}
	return p
}

// encryptionOf returns the encryption of a system volume, or nil: of its document, or else of the v1alpha1 document.
func encryptionOf(cfg config.Provider, volume string) documents.EncryptionConfig {
	document, _ := cfg.Volumes().ByName(volume)
	if e := document.Encryption(); e != nil || cfg.Machine() == nil {
		return e
	}
	return cfg.Machine().SystemDiskEncryption().Get(volume)
}

// describeEncryption returns an encryption without secrets, or an empty string for nil.
func describeEncryption(e documents.EncryptionConfig) string {
	if e == nil {
		return ""
	}
	text := fmt.Sprint(e.Provider(), e.Cipher(), e.KeySize(), e.BlockSize(), e.Options())
	for _, key := range e.Keys() {
		text += fmt.Sprintf(" %d %t ", key.Slot(), key.LockToSTATE())
		switch {
		case key.Static() != nil:
			text += "static"
		case key.NodeID() != nil:
			text += "nodeID"
		case key.KMS() != nil:
			text += "kms " + key.KMS().Endpoint()
		case key.TPM() != nil:
			text += fmt.Sprint("tpm ", key.TPM().CheckSecurebootOnEnroll(), key.TPM().PCRs(), key.TPM().PubKeyPCRs())
		}
	}
	return text
}

func describePartitions(d documents.Disk) []string {
	var all []string
	for _, part := range d.Partitions() {
		all = append(all, fmt.Sprint(part.Size(), part.MountPoint()))
	}
	return all
}

// limit separates the digest of a volume that grows from the size in bytes up to which it grows.
const limit = "<="

// defaultEphemeral is the digest of EPHEMERAL without a VolumeConfig: it grows as far as its disk.
var defaultEphemeral = fmt.Sprint(digest("", "0", "true"), limit, uint64(math.MaxUint64))

// volumeDigest returns a digest of the provisioning of a volume and of its other settings. grow is the default of
// grow. A volume that grows up to a size in bytes has that size after the digest.
func volumeDigest(p documents.VolumeProvisioningConfig, grow bool, others ...string) string {
	grow = p.Grow().ValueOr(grow)
	selector := ""
	if match, has := p.DiskSelector().Get(); has {
		selector = match.String()
	}
	settings := append([]string{selector, strconv.FormatUint(p.MinSize().ValueOrZero(), 10), strconv.FormatBool(grow)}, others...)
	if relative, has := p.RelativeMaxSize().Get(); has {
		return digest(append(settings, fmt.Sprint(relative, "%", p.MaxSizeNegative()))...)
	}
	size := p.MaxSize().ValueOrZero()
	if !grow || p.MaxSizeNegative() {
		return digest(append(settings, fmt.Sprint(size, p.MaxSizeNegative()))...)
	}
	if size == 0 {
		size = math.MaxUint64
	}
	return fmt.Sprint(digest(settings...), limit, size)
}

// mayGrow reports whether two volumes differ only in that the wanted one grows to a larger size.
func mayGrow(has, wants string) bool {
	before, from, grows := strings.Cut(has, limit)
	after, to, growsAfter := strings.Cut(wants, limit)
	if !grows || !growsAfter || before != after {
		return false
	}
	smaller, err := strconv.ParseUint(from, 10, 64)
	larger, errAfter := strconv.ParseUint(to, 10, 64)
	return err == nil && errAfter == nil && smaller < larger
}

// digest returns a short digest of texts. It detects changes, and is no protection against forgery.
func digest(texts ...string) string {
	encoded, err := json.Marshal(texts)
	if err != nil {
		return "" // strings can always be encoded
	}
	sum := sha256.Sum256(encoded)
	const length = 4
	return hex.EncodeToString(sum[:length])
}
