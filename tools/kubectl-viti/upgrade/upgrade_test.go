package upgrade_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/tools/kubectl-viti/upgrade"
)

func cluster(change func(*v1alpha1.KubernetesCluster)) *v1alpha1.KubernetesCluster {
	k := &v1alpha1.KubernetesCluster{}
	k.Name = "shop"
	k.Spec.Topology.Version = "1.33"
	k.Status.Version, k.Status.TalosVersion = "1.33.1", "1.13.9"
	if change != nil {
		change(k)
	}
	return k
}

func TestPlan(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		because string
		change  func(*v1alpha1.KubernetesCluster)
		request upgrade.Request
		want    versions.Pair
		changes []upgrade.Change
		message string
	}{
		"Minor": {because: "the next minor version, written as it was asked for", request: upgrade.Request{Kubernetes: "1.34"}, want: versions.Pair{Talos: "1.13.9", Kubernetes: "1.34.13"},
			changes: []upgrade.Change{{"replace", "/spec/topology/version", "1.34"}}},
		"Patch": {because: "the minor version of the running release means that release, so the newest is written", request: upgrade.Request{Kubernetes: "1.33"},
			want: versions.Pair{Talos: "1.13.9", Kubernetes: "1.33.13"}, changes: []upgrade.Change{{"replace", "/spec/topology/version", "1.33.13"}}},
		"Own": {because: "the control plane and a pool have versions of their own", change: func(k *v1alpha1.KubernetesCluster) {
			k.Spec.Topology.ControlPlane.Version = "1.33"
			k.Spec.Topology.Workers = []v1alpha1.WorkerPool{{Name: "a"}, {Name: "b", Version: "1.32.1"}}
		}, request: upgrade.Request{Kubernetes: "v1.34.1"}, want: versions.Pair{Talos: "1.13.9", Kubernetes: "1.34.1"}, changes: []upgrade.Change{
			{"replace", "/spec/topology/version", "1.34.1"}, {"replace", "/spec/topology/controlplane/version", "1.34.1"},
			{"test", "/spec/topology/workers/1/name", "b"}, {"replace", "/spec/topology/workers/1/version", "1.34.1"}}},
		"Talos": {because: "the spec names no Talos version", change: func(k *v1alpha1.KubernetesCluster) { k.Status.TalosVersion = "1.12.6" }, request: upgrade.Request{Talos: "v1.13.9"},
			want: versions.Pair{Talos: "1.13.9", Kubernetes: "1.33.1"}, changes: []upgrade.Change{{"add", "/spec/talos", map[string]any{"version": "1.13.9"}}}},
		"TalosAgain": {because: "it names one", change: func(k *v1alpha1.KubernetesCluster) {
			k.Status.TalosVersion, k.Spec.Talos = "1.12.6", &v1alpha1.TalosOptions{Version: "1.12.6"}
		}, request: upgrade.Request{Talos: "1.13.9"}, want: versions.Pair{Talos: "1.13.9", Kubernetes: "1.33.1"}, changes: []upgrade.Change{{"add", "/spec/talos/version", "1.13.9"}}},
		"Written": {because: "the spec has it already", change: func(k *v1alpha1.KubernetesCluster) { k.Spec.Topology.Version = "1.34" }, request: upgrade.Request{Kubernetes: "1.34"},
			want: versions.Pair{Talos: "1.13.9", Kubernetes: "1.34.13"}},
		"Skip":    {because: "a minor version may not be left out", request: upgrade.Request{Kubernetes: "1.35"}, message: "write 1.34 first"},
		"Back":    {because: "etcd has newer data", request: upgrade.Request{Kubernetes: "1.32"}, message: "write at least 1.33"},
		"Unknown": {because: "it has not been released", request: upgrade.Request{Kubernetes: "1.99"}, message: "write a version from 1.31 to 1.36"},
		"OldTalos": {because: "the installer goes no further", change: func(k *v1alpha1.KubernetesCluster) { k.Status.TalosVersion = "1.9.0" }, request: upgrade.Request{Talos: "1.13.9"},
			message: "write a release of 1.11 into spec.talos.version first"},
		"New": {because: "its version does not exist, so it does not run yet", change: func(k *v1alpha1.KubernetesCluster) {
			k.Spec.Topology.Version, k.Status.Version, k.Status.TalosVersion = "1.99", "", ""
		}, request: upgrade.Request{Kubernetes: "1.35"}, want: versions.Pair{Talos: versions.DefaultTalos, Kubernetes: versions.Upgrades(versions.Pair{Talos: versions.DefaultTalos, Kubernetes: "1.34.13"})[0]},
			changes: []upgrade.Change{{"replace", "/spec/topology/version", "1.35"}}},
		"NewTalos": {because: "the Talos version in the spec decides", change: func(k *v1alpha1.KubernetesCluster) {
			k.Status.Version, k.Status.TalosVersion, k.Spec.Talos = "", "", &v1alpha1.TalosOptions{Version: "v1.11.0"}
		}, request: upgrade.Request{Kubernetes: "1.35"}, message: "write a version from 1.29 to 1.34"},
		"NewOther": {because: "the version in the spec has to suit the Talos version too", change: func(k *v1alpha1.KubernetesCluster) { k.Status.Version, k.Status.TalosVersion = "", "" },
			request: upgrade.Request{Talos: "1.20.0"}, message: "spec.talos.version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, changes, err := upgrade.Plan(cluster(tc.change), tc.request)
			if tc.message != "" {
				if err == nil || !strings.Contains(err.Error(), tc.message) {
					t.Fatalf("%s: got %v, want an error with %q", tc.because, err, tc.message)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Fatalf("%s: got %v, %v, want %v", tc.because, got, err, tc.want)
			}
			if diff := cmp.Diff(tc.changes, changes); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.because, diff)
			}
		})
	}
}
