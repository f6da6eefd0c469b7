// Command controller is KubeVirt's own virt-controller, which ends when its standard input is closed. With the
// argument "definitions" it prints the CustomResourceDefinitions of that release, as virt-operator installs
// them, and ends.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"kubevirt.io/kubevirt/pkg/virt-controller/watch"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
)

// definitions are those of the kinds that virt-controller watches.
var definitions = []func() (*extv1.CustomResourceDefinition, error){
	components.NewVirtualMachineCrd, components.NewVirtualMachineInstanceCrd, components.NewPresetCrd,
	components.NewReplicaSetCrd, components.NewVirtualMachineInstanceMigrationCrd, components.NewKubeVirtCrd,
	components.NewVirtualMachinePoolCrd, components.NewVirtualMachineSnapshotCrd,
	components.NewVirtualMachineSnapshotContentCrd, components.NewVirtualMachineRestoreCrd,
	components.NewVirtualMachineExportCrd, components.NewVirtualMachineBackupCrd,
	components.NewVirtualMachineBackupTrackerCrd, components.NewVirtualMachineInstancetypeCrd,
	components.NewVirtualMachineClusterInstancetypeCrd, components.NewVirtualMachinePreferenceCrd,
	components.NewVirtualMachineClusterPreferenceCrd, components.NewMigrationPolicyCrd,
	components.NewVirtualMachineCloneCrd,
}

func main() {
	if len(os.Args) != 2 || os.Args[1] != "definitions" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		watch.Execute()
		return
	}
	for _, definition := range definitions {
		crd, err := definition()
		if err != nil {
			log.Fatal(err)
		}
		text, err := yaml.Marshal(crd)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("---\n%s", text)
	}
}
