package kubevirt

import (
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestDecideRestart(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, recorded, instance string
		phase                      v1alpha1.MachinePhase
		want                       string
	}{
		"Running":   {"no instance was deleted for this token", "", "uid1", v1alpha1.MachineRunning, restartRecord},
		"Next":      {"the last restart served another token", "uid0 first", "uid1", v1alpha1.MachineRunning, restartRecord},
		"Interrupt": {"the process ended between record and deletion", "uid1 second", "uid1", v1alpha1.MachineRunning, restartDelete},
		"Successor": {"the recorded instance is gone", "uid1 second", "uid2", v1alpha1.MachineRunning, restartServed},
		"Waiting":   {"an instance without a host is deleted as well", "", "uid1", v1alpha1.MachineCreating, restartRecord},
		"Stopped":   {"the next start is a new instance", "", "", v1alpha1.MachineStopped, restartServed},
		"Replaced":  {"the instance is being replaced", "", "", v1alpha1.MachineRunning, restartWait},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := decideRestart("second", tc.recorded, tc.instance, tc.phase); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
