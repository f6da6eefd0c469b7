package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, text string
		want         []Hierarchy
	}{
		"Version1": {
			reason: "each controller has a hierarchy, and one without a controller has none",
			text:   "9:name=systemd:/\n8:pids:/\n4:memory:/some/group\n1:cpu:/\n0::/\n",
			want:   []Hierarchy{{"cpu"}, {"memory"}, {"pids"}},
		},
		"Joint":    {reason: "controllers can share a hierarchy", text: "4:cpu,cpuacct:/\n0::/\n", want: []Hierarchy{{"cpu,cpuacct"}}},
		"Version2": {reason: "all controllers share the only hierarchy", text: "0::/user.slice/session-1.scope\n", want: []Hierarchy{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := parse(tc.text); !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestWeightFile(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "cpu.weight", "cpu": "cpu.shares", "cpu,cpuacct": "cpu.shares", "cpuset": "", "cpuacct": ""} {
		if got, _ := (Hierarchy{name}).weightFile(); got != want {
			t.Errorf("the hierarchy %q has the weight in %q, want %q", name, got, want)
		}
	}
}

// TestRemoveTree removes folders in place of cgroups, which are removed by the same calls.
func TestRemoveTree(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "node")
	for _, below := range []string{"kubepods/pod1", "kubepods/pod2", "system"} {
		if err := os.MkdirAll(filepath.Join(root, below), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeTree(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the tree is left: %v", err)
	}
}
