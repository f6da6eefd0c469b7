package manifests

import (
	"testing"
)

func TestConfigMapName(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"shop-cp-0.yaml":              "shop-manifests",
		"shop-cp-60.talos.yaml":       "shop-manifests",
		"shop-pool-0.yaml":            "shop-manifests-pool-0",
		"shop-pool-49.talos.yaml":     "shop-manifests-pool-0",
		"shop-pool-50.yaml":           "shop-manifests-pool-1",
		"shop-blue-cp-299.talos.yaml": "shop-manifests-blue-cp-5",
	} {
		if got := configMapName("shop", file); got != want {
			t.Errorf("%s is in %s, want %s", file, got, want)
		}
	}
}
