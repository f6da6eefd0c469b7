package nodeconfig

import (
	"fmt"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	documents "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// Keep returns the wanted configuration with the parts that an installed node keeps until it is replaced: the parts
// that only a new node gets, by Compare, and the encryption of each volume that exists, with its keys. present is the
// configuration of the node. Arguments of the kernel are no such part: nothing reads them before an upgrade.
func Keep(present, wanted config.Provider) (config.Provider, error) {
	changed := Read(present).Compare(Read(wanted)).NewNode
	kept, err := wanted.PatchV1Alpha1(func(c *v1alpha1.Config) error {
		if before := present.RawV1Alpha1(); before != nil {
			keepMachine(before.MachineConfig, c.MachineConfig)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("keep what only a new node gets: %w", err)
	}
	var all []documents.Document
	for _, d := range kept.Documents() {
		if d = keepDocument(present, d, changed); d != nil {
			all = append(all, d)
		}
	}
	for _, name := range systemVolumes {
		if findDocument(wanted, block.VolumeConfigKind, name) != nil {
			continue
		}
		if before, exists := findDocument(present, block.VolumeConfigKind, name).(*block.VolumeConfigV1Alpha1); exists {
			all = appendVolume(all, keepVolume(before, withoutSettings(before), changed))
		}
	}
	return container.New(all...)
}

// keepMachine writes into after what a machine section has before.
//
//nolint:staticcheck // Talos still reads the deprecated fields
func keepMachine(before, after *v1alpha1.MachineConfig) {
	if before == nil || after == nil {
		return
	}
	after.MachineSystemDiskEncryption = before.MachineSystemDiskEncryption.DeepCopy()
	for i, d := range after.MachineDisks {
		at := slices.IndexFunc(before.MachineDisks, func(b *v1alpha1.MachineDisk) bool { return b.DeviceName == d.DeviceName })
		if at >= 0 {
			after.MachineDisks[i] = before.MachineDisks[at].DeepCopy()
		}
	}
}

// keepDocument returns a document of the wanted configuration with what the node keeps, or nil if nothing is left of
// it.
func keepDocument(present config.Provider, wanted documents.Document, changed []string) documents.Document {
	named, isNamed := wanted.(documents.NamedDocument)
	if !isNamed {
		return wanted
	}
	before := findDocument(present, wanted.Kind(), named.Name())
	after := wanted.Clone()
	switch v := after.(type) {
	case *block.VolumeConfigV1Alpha1:
		volume, _ := before.(*block.VolumeConfigV1Alpha1)
		if !slices.Contains(systemVolumes, v.MetaName) {
			return wanted
		}
		if kept := appendVolume(nil, keepVolume(volume, v, changed)); len(kept) == 0 {
			return nil
		}
	case *block.UserVolumeConfigV1Alpha1:
		if b, exists := before.(*block.UserVolumeConfigV1Alpha1); exists {
			v.EncryptionSpec = b.EncryptionSpec
			if slices.Contains(changed, "user "+volumePart(v.MetaName)) {
				v.VolumeType, v.ProvisioningSpec, v.FilesystemSpec = b.VolumeType, b.ProvisioningSpec, b.FilesystemSpec
			}
		}
	case *block.RawVolumeConfigV1Alpha1:
		if b, exists := before.(*block.RawVolumeConfigV1Alpha1); exists {
			v.EncryptionSpec = b.EncryptionSpec
			if slices.Contains(changed, "raw "+volumePart(v.MetaName)) {
				v.ProvisioningSpec = b.ProvisioningSpec
			}
		}
	case *block.SwapVolumeConfigV1Alpha1:
		if b, exists := before.(*block.SwapVolumeConfigV1Alpha1); exists {
			v.EncryptionSpec = b.EncryptionSpec
			if slices.Contains(changed, "swap "+volumePart(v.MetaName)) {
				v.ProvisioningSpec = b.ProvisioningSpec
			}
		}
	}
	return after
}

// keepVolume writes into the document of a system volume what that has before, which is nil without a document.
func keepVolume(before, after *block.VolumeConfigV1Alpha1, changed []string) *block.VolumeConfigV1Alpha1 {
	if before == nil {
		before = &block.VolumeConfigV1Alpha1{}
	}
	after.EncryptionSpec = before.EncryptionSpec
	if slices.Contains(changed, volumePart(after.MetaName)) {
		after.ProvisioningSpec = before.ProvisioningSpec
	}
	return after
}

// withoutSettings returns a document of the same volume that has only its name.
func withoutSettings(v *block.VolumeConfigV1Alpha1) *block.VolumeConfigV1Alpha1 {
	empty := block.NewVolumeConfigV1Alpha1()
	empty.MetaName = v.MetaName
	return empty
}

// appendVolume appends the document of a system volume, unless it has only a name.
func appendVolume(all []documents.Document, v *block.VolumeConfigV1Alpha1) []documents.Document {
	if v.EncryptionSpec.IsZero() && v.ProvisioningSpec.IsZero() && v.MountSpec == (block.MountSpec{}) {
		return all
	}
	return append(all, v)
}

// findDocument returns the document of a kind and name, or nil.
func findDocument(cfg config.Provider, kind, name string) documents.Document {
	for _, d := range cfg.Documents() {
		if named, isNamed := d.(documents.NamedDocument); isNamed && d.Kind() == kind && named.Name() == name {
			return d
		}
	}
	return nil
}
