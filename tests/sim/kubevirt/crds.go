package kubevirt

import (
	"embed"
	"io/fs"
)

//go:generate go run ./crds/generate -out crds

//go:embed crds/*.yaml
var crdFiles embed.FS

// CRDs returns the CustomResourceDefinitions of the kinds that the simulator
// works on, one YAML document per file: KubeVirt 1.9.0 (KubeVirt, VirtualMachine,
// VirtualMachineInstance, VirtualMachineInstanceMigration), CDI 1.65.0
// (DataVolume, StorageProfile) and Multus (NetworkAttachmentDefinition).
func CRDs() fs.FS {
	files, err := fs.Sub(crdFiles, "crds")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return files
}
