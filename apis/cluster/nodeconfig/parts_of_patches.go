package nodeconfig

import (
	"fmt"
	"maps"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// PartsOf returns the parts of the configurations that patches make. The configurations of the stack without
// patches have none.
func PartsOf(patches []configpatcher.Patch) (Parts, error) {
	empty := container.NewV1Alpha1(&v1alpha1.Config{ConfigVersion: "v1alpha1", MachineConfig: &v1alpha1.MachineConfig{}, ClusterConfig: &v1alpha1.ClusterConfig{}})
	patched, err := configpatcher.Apply(configpatcher.WithConfig(empty), patches)
	if err != nil {
		return nil, fmt.Errorf("apply patches: %w", err)
	}
	cfg, err := patched.Config()
	if err != nil {
		return nil, fmt.Errorf("apply patches: %w", err)
	}
	return Read(cfg), nil
}

// OfConfigMaps returns the parts of the configurations that the patches in ConfigMaps make, which are applied in the
// alphabetical order of the keys.
func OfConfigMaps(all ...map[string]string) (Parts, error) {
	var patches []configpatcher.Patch
	for _, data := range all {
		for _, key := range slices.Sorted(maps.Keys(data)) {
			patch, err := configpatcher.LoadPatch([]byte(data[key]))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			patches = append(patches, patch)
		}
	}
	return PartsOf(patches)
}
