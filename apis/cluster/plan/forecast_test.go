package plan

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestForecast(t *testing.T) {
	t.Parallel()
	cluster := func(change func(*v1alpha1.KubernetesCluster)) *v1alpha1.KubernetesCluster {
		kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
		kc.Spec.Topology = v1alpha1.ClusterTopology{Version: "1.33", ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: 1}, Workers: []v1alpha1.WorkerPool{{Name: "a", Replicas: 3}}}
		kc.Status.Version, kc.Status.TalosVersion = "1.33.13", "1.13.9"
		change(kc)
		return kc
	}
	for name, tc := range map[string]struct {
		reason    string
		change    func(*v1alpha1.KubernetesCluster)
		protected string
		want      string
		kept      string
	}{
		"Same":    {reason: "nothing happens to a cluster that is as its spec says", change: func(*v1alpha1.KubernetesCluster) {}},
		"Grow":    {reason: "new machines get the next names", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Replicas = 5 }, want: "create a 2: c-a-3 c-a-4"},
		"Shrink":  {reason: "the newest leaves first", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Replicas = 1 }, want: "remove a 2: c-a-2 c-a-1"},
		"Kept":    {reason: "a protected machine stays", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Replicas = 2 }, protected: "c-a-2", want: "remove a 1: c-a-1"},
		"AllKept": {reason: "a protected machine that would leave is named", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers = nil }, protected: "c-a-2", want: "remove a 2: c-a-1 c-a-0", kept: "c-a-2"},
		"Pool":    {reason: "a pool that is not in the spec leaves", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Name = "b" }, want: "create b 3: c-b-0 c-b-1 c-b-2; remove a 3: c-a-2 c-a-1 c-a-0"},
		"Upgrade": {reason: "the API servers come before the kubelets, one node after the other", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Version = "1.34" },
			want: "upgrade ControlPlane cp 1: c-cp-0; upgrade Kubelet cp 1: c-cp-0; upgrade Kubelet a 1: c-a-0 c-a-1 c-a-2"},
		"Together": {reason: "a pool may upgrade several nodes at the same time", change: func(kc *v1alpha1.KubernetesCluster) {
			kc.Spec.Topology.Workers[0].UpgradeConcurrency, kc.Spec.Talos = 2, &v1alpha1.TalosOptions{Version: "1.13.10"}
		}, want: "upgrade Talos cp 1: c-cp-0; upgrade Talos a 2: c-a-0 c-a-1 c-a-2"},
		"Template": {reason: "another template replaces the machines, the oldest first", change: func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Template = "large" }, want: "replace a 1: c-a-0 c-a-1 c-a-2"},
		"InPlace": {reason: "a pool that is resized in place", change: func(kc *v1alpha1.KubernetesCluster) {
			kc.Spec.Topology.Workers[0].Template, kc.Spec.Topology.Workers[0].Rollout = "large", &v1alpha1.Rollout{Type: v1alpha1.RolloutInPlace, MaxUnavailable: 2}
		}, want: "resize a 2: c-a-0 c-a-1 c-a-2"},
		"SmallerDisk": {reason: "a smaller disk cannot be made in place", change: func(kc *v1alpha1.KubernetesCluster) {
			kc.Spec.Topology.Workers[0].Template, kc.Spec.Topology.Workers[0].Rollout = "small", &v1alpha1.Rollout{Type: v1alpha1.RolloutInPlace}
		}, want: "replace a 1: c-a-0 c-a-1 c-a-2"},
		"Both": {reason: "a machine that leaves is neither upgraded nor replaced", change: func(kc *v1alpha1.KubernetesCluster) {
			kc.Spec.Topology.Workers[0].Template, kc.Spec.Topology.Workers[0].Replicas = "large", 2
		}, want: "remove a 1: c-a-2; replace a 1: c-a-0 c-a-1"},
	} {
		machines := map[string]*v1alpha1.Machine{}
		old, err := Make(cluster(func(*v1alpha1.KubernetesCluster) {}), nil, DefaultTalosVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range old.Members {
			machines[m.Name] = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: map[string]string{
				v1alpha1.LabelClusterRole: m.Role, v1alpha1.LabelWorkerGroup: m.Pool, v1alpha1.LabelMachineTemplate: m.Properties.Template}}}
			machines[m.Name].Spec.Template, machines[m.Name].Spec.Protected = m.Properties.Template, m.Name == tc.protected
		}
		kc := cluster(tc.change)
		p, err := Make(kc, machines, DefaultTalosVersion)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		steps, kept := p.Forecast(kc, machines, nil, func(string) string { return "1.33.13" })
		var got []string
		for _, s := range steps {
			words := strings.Fields(fmt.Sprintf("%s %s %s", s.Action, s.Kind, s.Pool))
			got = append(got, fmt.Sprintf("%s %d: %s", strings.Join(words, " "), s.AtOnce, strings.Join(s.Machines, " ")))
		}
		if strings.Join(got, "; ") != tc.want || strings.Join(kept, " ") != tc.kept {
			t.Errorf("%s: %s:\ngot  %s, protected %v\nwant %s", name, tc.reason, strings.Join(got, "; "), kept, tc.want)
		}
	}
}
