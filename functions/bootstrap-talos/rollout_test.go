package main

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestTakeTurn(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) *metav1.Time { at := metav1.NewTime(now.Add(-d)); return &at }
	node := func(talos, boot string, ready bool) observed {
		return observed{node: workloadNode{name: "n", talos: talos, boot: boot, ready: ready}}
	}
	asked := func(since, last time.Duration) v1alpha1.NodeUpgrade {
		return v1alpha1.NodeUpgrade{Step: v1alpha1.UpgradeRequested, To: "1.13.9", BootID: "a", Since: *ago(since), Asked: ago(last)}
	}
	drains := v1alpha1.NodeUpgrade{Step: v1alpha1.UpgradeDraining, To: "1.13.9", Since: *ago(time.Hour)}
	failed := v1alpha1.NodeUpgrade{Step: v1alpha1.UpgradeFailed, To: "1.13.9", BootID: "a", Since: *ago(time.Hour)}
	cases := map[string]struct {
		reason string
		u      v1alpha1.NodeUpgrade
		o      observed
		want   turn
	}{
		"Done":        {"it runs what is wanted", asked(time.Minute, time.Minute), node("1.13.9", "b", true), turnFinish},
		"NotReady":    {"it runs what is wanted, but no pod yet", asked(time.Minute, time.Second), node("1.13.9", "b", false), turnWait},
		"Draining":    {"a drain takes as long as budgets say", drains, node("1.12.6", "a", true), turnDrain},
		"Reverted":    {"the wish for another version was taken back", drains, node("1.13.9", "a", true), turnFinish},
		"Asked":       {"it has just been told", asked(time.Second, time.Second), node("1.12.6", "a", true), turnWait},
		"Lost":        {"the request may not have arrived", asked(2*time.Minute, time.Minute), node("1.12.6", "a", true), turnAsk},
		"Died":        {"nobody has told it before the delivery died", v1alpha1.NodeUpgrade{Step: v1alpha1.UpgradeRequested, To: "1.13.9", BootID: "a", Since: *ago(time.Second)}, node("1.12.6", "a", true), turnAsk},
		"RolledBack":  {"the new version did not start", asked(time.Minute, time.Minute), node("1.12.6", "b", true), turnFail},
		"BackTooSoon": {"it is only just booting", asked(time.Minute, time.Second), node("1.12.6", "b", false), turnWait},
		"GivenUp":     {"nothing came of it", asked(upgradePatience, time.Minute), node("1.12.6", "a", false), turnFail},
		"Failed":      {"somebody has to look", failed, node("1.12.6", "b", true), turnWait},
		"Healed":      {"it came up after all", failed, node("1.13.9", "b", true), turnFinish},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := takeTurn(v1alpha1.UpgradeTalos, tc.u, tc.o, now); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// fleetOf are 3 control planes and pools a of 3 and b of 1, of which those that are
// named run the old versions.
func fleetOf(old ...string) (plan, []observed) {
	p := plan{versions: versions{kubernetes: "1.34.1", talos: "1.13.9"}}
	var nodes []observed
	for _, m := range []member{
		{name: "cp-0", role: v1alpha1.RoleControlPlane, pool: "cp"}, {name: "cp-1", role: v1alpha1.RoleControlPlane, pool: "cp"},
		{name: "cp-2", role: v1alpha1.RoleControlPlane, pool: "cp"}, {name: "a-0", role: v1alpha1.RoleWorker, pool: "a"},
		{name: "a-1", role: v1alpha1.RoleWorker, pool: "a"}, {name: "a-2", role: v1alpha1.RoleWorker, pool: "a"}, {name: "b-0", role: v1alpha1.RoleWorker, pool: "b"},
	} {
		m.version = p.kubernetes
		o := observed{member: m, node: workloadNode{name: m.name, ready: true, version: "v1.34.1", talos: "1.13.9"}}
		if m.role == v1alpha1.RoleControlPlane {
			o.api = "1.34.1"
		}
		if slices.Contains(old, m.name) {
			o.node.talos, o.node.version = "1.12.6", "v1.33.4"
		}
		p.members, nodes = append(p.members, m), append(nodes, o)
	}
	return p, nodes
}

func TestNextNodes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		old, busy []string
		atOnce    map[string]int
		want      []string
	}{
		"Nothing":      {reason: "every node is done"},
		"First":        {reason: "one control plane at a time, before any worker", old: []string{"cp-0", "cp-1", "cp-2", "a-0"}, atOnce: map[string]int{"a": 2}, want: []string{"cp-0"}},
		"Busy":         {reason: "a control plane is away", old: []string{"cp-1", "cp-2", "a-0"}, busy: []string{"cp-1"}},
		"Workers":      {reason: "a worker after the control planes", old: []string{"a-0", "a-1", "b-0"}, want: []string{"a-0"}},
		"LastOfPlanes": {reason: "the last control plane is not done", old: []string{"cp-2", "a-0"}, busy: []string{"cp-2"}},
		"Several":      {reason: "a pool may have several away", old: []string{"a-0", "a-1", "a-2", "b-0"}, atOnce: map[string]int{"a": 2}, want: []string{"a-0", "a-1"}},
		"OneMore":      {reason: "one of two is away", old: []string{"a-0", "a-1", "a-2"}, busy: []string{"a-0"}, atOnce: map[string]int{"a": 2}, want: []string{"a-1"}},
		"NextPool":     {reason: "the pool before has a node away", old: []string{"a-2", "b-0"}, busy: []string{"a-2"}, atOnce: map[string]int{"a": 2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, nodes := fleetOf(tc.old...)
			var busy []v1alpha1.NodeUpgrade
			for _, n := range tc.busy {
				busy = append(busy, v1alpha1.NodeUpgrade{Name: n})
			}
			var got []string
			for _, o := range p.next(v1alpha1.UpgradeTalos, nodes, busy, tc.atOnce) {
				got = append(got, o.name)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNextKind(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(p *plan, nodes []observed)
		want   v1alpha1.UpgradeKind
	}{
		"Nothing":      {"every node runs what is wanted", func(*plan, []observed) {}, ""},
		"Unknown":      {"what a node runs is not known", func(_ *plan, nodes []observed) { nodes[3].node = workloadNode{} }, ""},
		"TalosFirst":   {"a newer Talos runs both", func(_ *plan, nodes []observed) { nodes[0].node.talos, nodes[0].api = "1.12.6", "1.33.4" }, v1alpha1.UpgradeTalos},
		"ControlPlane": {"no kubelet is newer than an API server", func(_ *plan, nodes []observed) { nodes[2].api, nodes[3].node.version = "1.33.4", "v1.33.4" }, v1alpha1.UpgradeControlPlane},
		"Kubelet":      {"the API servers are done", func(_ *plan, nodes []observed) { nodes[3].node.version = "v1.33.4" }, v1alpha1.UpgradeKubelet},
		"KubernetesFirst": {"the newer Talos does not run the Kubernetes that is there", func(_ *plan, nodes []observed) {
			nodes[0].node.talos, nodes[0].node.version, nodes[0].api = "1.12.6", "v1.30.14", "1.30.14"
		}, v1alpha1.UpgradeControlPlane},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, nodes := fleetOf()
			tc.change(&p, nodes)
			if got := p.nextKind(nodes); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func TestCheckSkew(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason                       string
		runs, talos                  string // what the cluster has now
		wanted, wantedTalos, kubelet string
		why                          string
	}{
		"New":            {reason: "a new cluster has no past", wanted: "1.34.1", wantedTalos: "1.13.9", kubelet: "1.34.1"},
		"Patch":          {reason: "a patch release", runs: "1.34.1", talos: "1.13.9", wanted: "1.34.13", wantedTalos: "1.13.9", kubelet: "1.34.13"},
		"Minor":          {reason: "the next minor release", runs: "1.33.4", talos: "1.13.9", wanted: "1.34.1", wantedTalos: "1.13.9", kubelet: "1.34.1"},
		"OldPatch":       {reason: "back by a patch release", runs: "1.34.13", talos: "1.13.9", wanted: "1.34.1", wantedTalos: "1.13.9", kubelet: "1.34.1"},
		"TwoMinors":      {reason: "no minor may be left out", runs: "1.33.4", talos: "1.13.9", wanted: "1.35.1", wantedTalos: "1.13.9", kubelet: "1.35.1", why: "KubernetesUpgradePath"},
		"Back":           {reason: "older API servers don't read newer data", runs: "1.34.1", talos: "1.13.9", wanted: "1.33.4", wantedTalos: "1.13.9", kubelet: "1.33.4", why: "KubernetesDowngrade"},
		"NewerKubelet":   {reason: "no kubelet is newer than the API server", wanted: "1.33.4", wantedTalos: "1.13.9", kubelet: "1.34.1", why: "VersionSkew"},
		"OlderKubelet":   {reason: "three minors behind are allowed", wanted: "1.35.1", wantedTalos: "1.13.9", kubelet: "1.32.1"},
		"AncientKubelet": {reason: "four minors behind are not", wanted: "1.36.1", wantedTalos: "1.13.9", kubelet: "1.32.1", why: "VersionSkew"},
		"Talos":          {reason: "the next Talos", runs: "1.34.1", talos: "1.12.6", wanted: "1.34.1", wantedTalos: "1.13.9", kubelet: "1.34.1"},
		"TalosTooFar":    {reason: "its installer refuses a Talos that old", runs: "1.33.4", talos: "1.9.0", wanted: "1.33.4", wantedTalos: "1.13.9", kubelet: "1.33.4", why: "TalosUpgradePath"},
		"BothApart":      {reason: "neither order has a Talos that runs its Kubernetes", runs: "1.30.14", talos: "1.11.3", wanted: "1.36.1", wantedTalos: "1.13.9", kubelet: "1.36.1", why: "KubernetesUpgradePath"},
		"ThenTalos":      {reason: "Kubernetes first, since the new Talos does not run the old one", runs: "1.30.14", talos: "1.11.3", wanted: "1.31.14", wantedTalos: "1.13.9", kubelet: "1.31.14"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := &v1alpha1.KubernetesCluster{}
			kc.Status.Version, kc.Status.TalosVersion = tc.runs, tc.talos
			p := plan{versions: versions{kubernetes: tc.wanted, talos: tc.wantedTalos}, members: []member{{name: "w-0", pool: "w", version: tc.kubelet}}}
			var f fault
			if err := p.checkSkew(kc); !errors.As(err, &f) && err != nil || f.reason != tc.why {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.why)
			}
		})
	}
}

func TestPinned(t *testing.T) {
	t.Parallel()
	kc := &v1alpha1.KubernetesCluster{}
	if got := pinned("1.34", kc); got != "1.34" {
		t.Errorf("a new cluster gets the newest patch release: got %s", got)
	}
	kc.Status.Version = "1.34.1"
	for wanted, want := range map[v1alpha1.KubernetesVersion]string{"1.34": "1.34.1", "v1.34": "1.34.1", "1.35": "1.35", "1.34.2": "1.34.2", "1.3": "1.3"} {
		if got := pinned(wanted, kc); got != want {
			t.Errorf("%s in a cluster with 1.34.1: got %s, want %s", wanted, got, want)
		}
	}
}

func TestJoining(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, wanted, running, want string }{
		{"a first node", "1.34.1", "", "1.34.1"},
		{"no kubelet is newer than the API server", "1.34.1", "1.33.4", "1.33.4"},
		{"a pool that stays behind", "1.32.1", "1.33.4", "1.32.1"},
	} {
		if got := joining(tc.wanted, tc.running); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
		}
	}
}

func TestWithTag(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{
		"ghcr.io/siderolabs/kubelet:v1.33.4":                  "ghcr.io/siderolabs/kubelet:v1.34.1",
		"mirror.example.com:5000/k8s/kubelet":                 "mirror.example.com:5000/k8s/kubelet:v1.34.1",
		"mirror.example.com:5000/kubelet:v1.33.4@sha256:abcd": "mirror.example.com:5000/kubelet:v1.34.1",
	} {
		if got := withTag(image, "v1.34.1"); got != want {
			t.Errorf("%s: got %s, want %s", image, got, want)
		}
	}
}

func TestTalosOf(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{"Talos (v1.13.9)": "1.13.9", "Ubuntu 24.04": "", "": ""} {
		if got := talosOf(image); got != want {
			t.Errorf("%s: got %q, want %q", image, got, want)
		}
	}
}

func TestOutdated(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, present, wanted string
		want                    bool
	}{
		"Same":     {"it runs what is wanted", "registry.k8s.io/kube-proxy:v1.34.1", "registry.k8s.io/kube-proxy:v1.34.1", false},
		"Older":    {"Talos does not touch it again", "registry.k8s.io/kube-proxy:v1.33.4", "registry.k8s.io/kube-proxy:v1.34.1", true},
		"Pinned":   {"a digest is a version too", "registry.k8s.io/kube-proxy:v1.33.4@sha256:abcd", "registry.k8s.io/kube-proxy:v1.34.1", true},
		"Mirror":   {"the configuration names a mirror now", "registry.k8s.io/kube-proxy:v1.33.4", "mirror.example.com/kube-proxy:v1.34.1", true},
		"Mirrored": {"the mirror has a newer version", "mirror.example.com/kube-proxy:v1.33.4", "mirror.example.com/kube-proxy:v1.34.1", true},
		"Foreign":  {"somebody runs another one", "example.com/proxy:v1.33.4", "registry.k8s.io/kube-proxy:v1.34.1", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := addon{"daemonsets", "kube-proxy", tc.wanted, "registry.k8s.io/kube-proxy"}
			if got := len(a.outdated([]corev1.Container{{Name: "kube-proxy", Image: tc.present}})) == 1; got != tc.want {
				t.Errorf("%s: changed %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
