package workload

import (
	"testing"
)

func TestTalosVersion(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{"Talos (v1.13.9)": "1.13.9", "Ubuntu 24.04": "", "": ""} {
		if got := TalosVersion(image); got != want {
			t.Errorf("%s: got %q, want %q", image, got, want)
		}
	}
}
