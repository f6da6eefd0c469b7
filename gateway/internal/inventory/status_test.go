package inventory

import "testing"

func TestMachineStatus(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		machine Machine
		want    string
	}{
		"Coming":   {"its disks are being made", Machine{Phase: "Creating"}, StatusPending},
		"Running":  {"nothing is wrong", Machine{Phase: "Running"}, StatusRunning},
		"Refused":  {"its hypervisor cannot make it", Machine{Phase: "Pending", VMFailed: true}, StatusFailed},
		"Crashing": {"it keeps the phase that it had", Machine{Phase: "Running", VMFailed: true}, StatusFailed},
		"Going":    {"the machine is being deleted", Machine{Phase: "Deleting", VMFailed: true}, StatusUnknown},
		"Off":      {"the model has no word for it", Machine{Phase: "Stopped"}, StatusUnknown},
	}
	for name, tc := range cases {
		if got := machineStatus(&tc.machine); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
}

func TestClusterStatus(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, phase, why, want string }{
		"Coming":   {"the stack continues without an action", "Provisioning", "WaitingForMachines", StatusInactive},
		"Running":  {"nothing is wrong", "Running", "ClusterRunning", StatusActive},
		"Changing": {"it serves meanwhile", "Updating", "Upgrading", StatusActive},
		"Silent":   {"nothing answers, whatever its phase is", "Updating", "ClusterUnreachable", StatusInactive},
		"Upgrade":  {"it stays between two versions until a person acts", "Updating", "UpgradeFailed", StatusFailed},
		"Lost":     {"nothing brings its data back by itself", "Running", "EtcdLost", StatusFailed},
		"Mistaken": {"nothing can be made of its spec", "Pending", "KubernetesVersionUnknown", StatusFailed},
		"Wish":     {"it serves although its new spec cannot be", "Running", "PatchNotFound", StatusActive},
		"Waiting":  {"the network may still come", "Pending", "NetworkNamespaceNotFound", StatusInactive},
		"Nameless": {"no function has reconciled it", "", "", StatusInactive},
		"Former":   {"older operators say so", "Failed", "", StatusFailed},
	}
	for name, tc := range cases {
		if got := clusterStatus(tc.phase, tc.why); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
}
