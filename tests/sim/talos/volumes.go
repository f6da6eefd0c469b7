package talos

import (
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/siderolabs/talos/pkg/machinery/config"
	documents "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// volume is a provisioned volume. Talos finds a provisioned volume by its label and does not provision it
// again, so that a later configuration changes neither its size nor its encryption: locateVolumeByMatch in
// internal/app/machined/pkg/controllers/block/internal/volumes/locate.go.
type volume struct {
	Encrypted bool   `json:"encrypted,omitempty"`
	Size      uint64 `json:"size,omitempty"`
}

func isEncrypted(e documents.EncryptionConfig) bool {
	return e != nil && e.Provider() != block.EncryptionProviderNone
}

// encryptionOf returns the encryption of a system volume: of its document, or else of the v1alpha1
// document, as in volumeconfig/system_volumes.go.
func encryptionOf(cfg config.Provider, name string) documents.EncryptionConfig {
	of, _ := cfg.Volumes().ByName(name)
	if e := of.Encryption(); e != nil {
		return e
	}
	return cfg.Machine().SystemDiskEncryption().Get(name)
}

// openSystemVolumes provisions the system volumes at the first boot with a configuration, and opens them at the
// following boots. A volume that was formatted without encryption cannot be opened with it, and the other
// way around: volumes/encrypt.go and volumes/format.go.
func (n *node) openSystemVolumes(names ...string) error {
	if n.Machine.mode().InContainer() {
		return nil
	}
	for _, name := range names {
		wanted := isEncrypted(encryptionOf(n.config, name))
		if _, provisioned := n.Volumes[name]; !provisioned {
			of, _ := n.config.Volumes().ByName(name)
			n.provision(name, volume{Encrypted: wanted, Size: of.Provisioning().MaxSize().ValueOrZero()})
		}
		switch present := n.Volumes[name]; {
		case wanted && !present.Encrypted:
			return fmt.Errorf("volume %s: block dev type mismatch: xfs != luks", name)
		case present.Encrypted && !wanted:
			return fmt.Errorf("volume %s: filesystem type mismatch: luks != xfs", name)
		}
	}
	return nil
}

// provisionUserVolumes provisions the user volumes that do not exist yet, which Talos does at any time.
func (n *node) provisionUserVolumes() {
	if n.config == nil || n.Machine.mode().InContainer() {
		return
	}
	for _, v := range n.config.UserVolumeConfigs() {
		if name := constants.UserVolumePrefix + v.Name(); n.Volumes[name] == (volume{}) {
			n.provision(name, volume{Encrypted: isEncrypted(v.Encryption()), Size: v.Provisioning().MinSize().ValueOrZero()})
		}
	}
}

func (n *node) provision(name string, v volume) {
	if n.Volumes == nil {
		n.Volumes = map[string]volume{}
	}
	n.Volumes[name] = v
	n.mustSave()
}

// volumeStatus returns the status of a volume of the system disk. otherwise is the size of a volume without a limit.
func (n *node) volumeStatus(name string, index int, otherwise uint64, fs block.FilesystemType) *block.VolumeStatus {
	v, at := n.Volumes[name], n.systemDisk()
	size := otherwise
	if v.Size != 0 {
		size = v.Size
	}
	location := fmt.Sprintf("%s%d", at.Device, index)
	status := block.NewVolumeStatus(block.NamespaceName, name)
	*status.TypedSpec() = block.VolumeStatusSpec{
		Phase: block.VolumePhaseReady, Type: block.VolumeTypePartition, Location: location, MountLocation: location,
		ParentLocation: at.Device, PartitionIndex: index, Size: size, PrettySize: humanize.Bytes(size), Filesystem: fs,
	}
	if v.Encrypted {
		status.TypedSpec().EncryptionProvider = block.EncryptionProviderLUKS2
	}
	return status
}
