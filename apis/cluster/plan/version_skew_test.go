package plan

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestCheckSkew(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason                       string
		runs, talos                  string // what the cluster runs now
		wanted, wantedTalos, kubelet string
		why                          string
	}{
		"New":            {reason: "a new cluster has no earlier version", wanted: "1.34.1", wantedTalos: "1.13.9", kubelet: "1.34.1"},
		"Patch":          {reason: "a patch release", runs: "1.34.1", talos: "1.13.9", wanted: "1.34.13", wantedTalos: "1.13.9", kubelet: "1.34.13"},
		"Minor":          {reason: "the next minor release", runs: "1.33.4", talos: "1.13.9", wanted: "1.34.1", wantedTalos: "1.13.9", kubelet: "1.34.1"},
		"OldPatch":       {reason: "back by a patch release", runs: "1.34.13", talos: "1.13.9", wanted: "1.34.1", wantedTalos: "1.13.9", kubelet: "1.34.1"},
		"TwoMinors":      {reason: "a minor version is skipped", runs: "1.33.4", talos: "1.13.9", wanted: "1.35.1", wantedTalos: "1.13.9", kubelet: "1.35.1", why: "KubernetesUpgradePath"},
		"Back":           {reason: "an older API server cannot read newer data", runs: "1.34.1", talos: "1.13.9", wanted: "1.33.4", wantedTalos: "1.13.9", kubelet: "1.33.4", why: "KubernetesDowngrade"},
		"NewerKubelet":   {reason: "a kubelet must not be newer than its API server", wanted: "1.33.4", wantedTalos: "1.13.9", kubelet: "1.34.1", why: "VersionSkew"},
		"OlderKubelet":   {reason: "three minors behind are allowed", wanted: "1.35.1", wantedTalos: "1.13.9", kubelet: "1.32.1"},
		"AncientKubelet": {reason: "four minors behind are not", wanted: "1.36.1", wantedTalos: "1.13.9", kubelet: "1.32.1", why: "VersionSkew"},
		"Talos":          {reason: "the next Talos", runs: "1.34.1", talos: "1.12.6", wanted: "1.34.1", wantedTalos: "1.13.9", kubelet: "1.34.1"},
		"TalosTooFar":    {reason: "its installer rejects a Talos that old", runs: "1.33.4", talos: "1.9.0", wanted: "1.33.4", wantedTalos: "1.13.9", kubelet: "1.33.4", why: "TalosUpgradePath"},
		"BothApart":      {reason: "neither order has a Talos that supports its Kubernetes", runs: "1.30.14", talos: "1.11.3", wanted: "1.36.1", wantedTalos: "1.13.9", kubelet: "1.36.1", why: "KubernetesUpgradePath"},
		"ThenTalos":      {reason: "Kubernetes is first, because the new Talos does not support the old one", runs: "1.30.14", talos: "1.11.3", wanted: "1.31.14", wantedTalos: "1.13.9", kubelet: "1.31.14"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := &v1alpha1.KubernetesCluster{}
			kc.Status.Version, kc.Status.TalosVersion = tc.runs, tc.talos
			p := Plan{Versions: Versions{Kubernetes: tc.wanted, Talos: tc.wantedTalos}, Members: []Member{{Name: "w-0", Pool: "w", Version: tc.kubelet}}}
			var f usererror.Error
			if err := p.checkSkew(kc); !errors.As(err, &f) && err != nil || f.Reason != tc.why {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.why)
			}
		})
	}
}

func TestPinnedVersion(t *testing.T) {
	t.Parallel()
	kc := &v1alpha1.KubernetesCluster{}
	if got := pinnedVersion("1.34", kc); got != "1.34" {
		t.Errorf("a new cluster gets the newest patch release: got %s", got)
	}
	kc.Status.Version = "1.34.1"
	for wanted, want := range map[v1alpha1.KubernetesVersion]string{"1.34": "1.34.1", "v1.34": "1.34.1", "1.35": "1.35", "1.34.2": "1.34.2", "1.3": "1.3"} {
		if got := pinnedVersion(wanted, kc); got != want {
			t.Errorf("%s in a cluster with 1.34.1: got %s, want %s", wanted, got, want)
		}
	}
}

// TestPinnedPoolVersion has a cluster whose control plane is newer than its pools.
func TestPinnedPoolVersion(t *testing.T) {
	t.Parallel()
	kc := example(t)
	kc.Name, kc.Status.Version, kc.Status.TalosVersion = "shop", "1.34.1", DefaultTalosVersion
	kc.Status.Nodes = []v1alpha1.NodeStatus{
		{Name: "shop-cp-0", Version: "v1.34.1"}, {Name: "shop-web-0", Version: "v1.33.4"}, {Name: "shop-web-1", Version: "v1.33.9"}, {Name: "shop-web-2"},
		{Name: "shop-web-a-0", Version: "v1.33.11"}, {Name: "shop-x1-wrk0", Version: "v1.33.5"}, {Name: "shop-old-0", Version: "v1.32.2"},
	}
	machines := map[string]*v1alpha1.Machine{"shop-x1-wrk0": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelWorkerGroup: "adopted"}}}}
	for _, tc := range []struct {
		reason, pool string
		version      v1alpha1.KubernetesVersion
		want         string
	}{
		{"the pool keeps the newest release that its nodes run", "web", "1.33", "1.33.9"},
		{"a prefix of its name is another pool", "web-a", "v1.33", "1.33.11"},
		{"an adopted machine has its pool in a label", "adopted", "1.33", "1.33.5"},
		{"a full version is taken as it is", "web", "1.33.12", "1.33.12"},
		{"the minor version of the control plane means its release", "web", "1.34", "1.34.1"},
		{"no node runs the minor version yet", "old", "1.33", "1.33"},
	} {
		if got := pinnedPoolVersion(v1alpha1.WorkerPool{Name: tc.pool, Version: tc.version}, kc, machines); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
		}
	}
	kc.Spec.Topology.Version, kc.Spec.Topology.ControlPlane.Version = "1.34", ""
	kc.Spec.Topology.Workers = []v1alpha1.WorkerPool{{Name: "web", Replicas: 1, Version: "1.33"}}
	p, err := Make(kc, nil, DefaultTalosVersion)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Members[1]; got.Name != "shop-web-0" || got.Version != "1.33.9" {
		t.Errorf("got %s with version %s, want shop-web-0 with 1.33.9", got.Name, got.Version)
	}
}

func TestJoiningVersion(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, wanted, running, want string }{
		{"a first node", "1.34.1", "", "1.34.1"},
		{"a kubelet must not be newer than its API server", "1.34.1", "1.33.4", "1.33.4"},
		{"a pool keeps its version", "1.32.1", "1.33.4", "1.32.1"},
	} {
		if got := JoiningVersion(tc.wanted, tc.running); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
		}
	}
}
