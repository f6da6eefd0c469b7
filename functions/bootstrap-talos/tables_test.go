package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestBeginning(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		b      beginning
		want   beginStep
	}{
		"Nobody":     {"nobody has a configuration yet", beginning{}, beginWait},
		"Choose":     {"who begins is written down first", beginning{up: true}, beginChoose},
		"Ask":        {"the chosen one is asked how far etcd is", beginning{chosen: true, up: true}, beginAsk},
		"Down":       {"it may have begun: nobody else may", beginning{chosen: true}, beginWait},
		"LostBegun":  {"somebody has joined what it began", beginning{chosen: true, lost: true, up: true, others: true}, beginDone},
		"LostSilent": {"who does not answer may have joined it", beginning{chosen: true, lost: true, up: true, silent: []string{"shop-cp-1"}}, beginWait},
		"LostFirst":  {"what it began is gone with it", beginning{chosen: true, lost: true, up: true}, beginChoose},
		"LostAlone":  {"there is nobody to choose", beginning{chosen: true, lost: true}, beginWait},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.b.next(); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestNextBootstrap(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	waiting := etcdService{state: etcdPreparing, empty: true, boot: "a"}
	sent := func(ago time.Duration, boot string, accepted bool) *v1alpha1.BootstrapRequest {
		return &v1alpha1.BootstrapRequest{Time: metav1.NewTime(now.Add(-ago)), BootID: boot, Accepted: accepted}
	}
	cases := map[string]struct {
		reason  string
		service etcdService
		last    *v1alpha1.BootstrapRequest
		want    bootstrapStep
	}{
		"First":      {"no request has been sent", waiting, nil, bootstrapSend},
		"Early":      {"its disk may not be mounted yet", etcdService{state: "Waiting"}, nil, bootstrapWait},
		"Pulling":    {"another request would begin the pull again", waiting, sent(time.Minute, "a", true), bootstrapWait},
		"Booted":     {"the node had the request in memory only", waiting, sent(time.Second, "b", true), bootstrapSend},
		"Nothing":    {"it has come to nothing within minutes", waiting, sent(acceptedPatience, "a", true), bootstrapSend},
		"Unanswered": {"the node may have accepted it", waiting, sent(time.Second, "a", false), bootstrapWait},
		"Lost":       {"it may not have arrived", waiting, sent(unansweredTime, "a", false), bootstrapSend},
		"Data":       {"it has the data of an etcd that is about to run", etcdService{state: etcdPreparing, boot: "b"}, sent(time.Hour, "a", true), bootstrapDone},
		"Running":    {"etcd runs", etcdService{state: etcdRunning}, sent(time.Second, "a", true), bootstrapDone},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := nextBootstrap(tc.service, tc.last, now); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestEffective(t *testing.T) {
	t.Parallel()
	pool := func(replicas, low, high int32) v1alpha1.WorkerPool {
		return v1alpha1.WorkerPool{Replicas: replicas, Autoscaling: &v1alpha1.Autoscaling{Enabled: true, MinReplicas: low, MaxReplicas: high}}
	}
	n := func(n int32) *int32 { return &n }
	fixed := v1alpha1.WorkerPool{Replicas: 4}
	cases := map[string]struct {
		reason string
		scaled *int32
		pools  []v1alpha1.WorkerPool
		want   []int32
	}{
		"Fixed":   {"a pool without autoscaling is as it says", n(9), []v1alpha1.WorkerPool{fixed}, []int32{4}},
		"Within":  {"replicas are what it begins from", nil, []v1alpha1.WorkerPool{pool(2, 1, 3)}, []int32{2}},
		"Below":   {"a pool has its least", nil, []v1alpha1.WorkerPool{pool(0, 1, 3)}, []int32{1}},
		"Above":   {"and not more than its most", nil, []v1alpha1.WorkerPool{pool(9, 1, 3)}, []int32{3}},
		"Scaled":  {"what an autoscaler says stands over replicas", n(3), []v1alpha1.WorkerPool{pool(1, 1, 5)}, []int32{3}},
		"Bounds":  {"within the bounds", n(9), []v1alpha1.WorkerPool{pool(1, 1, 5)}, []int32{5}},
		"Zero":    {"of both ends", n(0), []v1alpha1.WorkerPool{pool(1, 2, 5)}, []int32{2}},
		"Several": {"pools are filled in their order", n(6), []v1alpha1.WorkerPool{pool(1, 1, 3), fixed, pool(1, 2, 9)}, []int32{3, 4, 3}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			once := effective(v1alpha1.ClusterTopology{Workers: tc.pools, ScaledWorkers: tc.scaled})
			var got []int32
			for _, p := range effective(once).Workers { // twice is as once
				got = append(got, p.Replicas)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRelabel(t *testing.T) {
	t.Parallel()
	front := v1alpha1.MachineProperties{Labels: map[string]string{"tier": "front"}, Taints: []v1alpha1.NodeTaint{{Key: "only", Value: "front", Effect: "NoSchedule"}}}
	foreign := corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute}
	ours := corev1.Taint{Key: "only", Value: "front", Effect: corev1.TaintEffectNoSchedule}
	owned := map[string]string{ownedLabels: "tier", ownedTaints: "only:NoSchedule"}
	cases := map[string]struct {
		reason string
		n      workloadNode
		p      v1alpha1.MachineProperties
		want   map[string]any
	}{
		"Nothing": {"nothing is wanted", workloadNode{labels: map[string]string{"other": "x"}, taints: []corev1.Taint{foreign}}, v1alpha1.MachineProperties{}, nil},
		"Same":    {"an idle node is not written", workloadNode{labels: map[string]string{"tier": "front"}, annotations: owned, taints: []corev1.Taint{foreign, ours}}, front, nil},
		"Add": {"what others set stays", workloadNode{taints: []corev1.Taint{foreign}}, front, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"tier": "front"}, "annotations": map[string]any{ownedLabels: "tier", ownedTaints: "only:NoSchedule"}},
			"spec":     map[string]any{"taints": []corev1.Taint{foreign, ours}},
		}},
		"Remove": {"what was the spec's goes with it", workloadNode{labels: map[string]string{"tier": "front", "other": "x"}, annotations: owned, taints: []corev1.Taint{ours, foreign}}, v1alpha1.MachineProperties{}, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"tier": nil}, "annotations": map[string]any{ownedLabels: nil, ownedTaints: nil}},
			"spec":     map[string]any{"taints": []corev1.Taint{foreign}},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, relabel(tc.n, tc.p)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	const uid = "0f8fad5b-d9cb-469f-a165-70867728950e"
	macs := []string{"02:00:00:00:00:01"}
	cases := map[string]struct {
		reason string
		id     identity
		want   bool
	}{
		"UUID":    {"the hypervisor gave the UUID", identity{uuid: uid}, true},
		"MAC":     {"the hypervisor chose the UUID itself", identity{uuid: "other", macs: []string{"02:00:00:00:00:09", "02:00:00:00:00:01"}}, true},
		"Other":   {"another machine has the address", identity{uuid: "other", macs: []string{"02:00:00:00:00:09"}}, false},
		"Nothing": {"who shows nothing is nobody", identity{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.id.is(uid, macs); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

func TestEndpointNode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, now string
		planes      []plane
		want        string
	}{
		"New":      {"the first one will have it", "", []plane{{"a", false, true, true}, {"b", true, true, false}}, "a"},
		"TooEarly": {"the first one does not run yet", "", []plane{{"b", true, true, false}}, ""},
		"Same":     {"everybody knows it", "b", []plane{{"a", true, true, true}, {"b", true, true, false}}, "b"},
		"Down":     {"it comes back", "b", []plane{{"a", true, true, true}, {"b", false, true, false}}, "b"},
		"Leaves":   {"another one takes its place", "a", []plane{{"b", true, true, false}, {"a", true, false, false}}, "b"},
		"Gone":     {"its machine is gone, or has another address", "a", []plane{{"b", false, true, true}, {"c", true, true, false}}, "c"},
		"Last":     {"nobody can take its place", "a", []plane{{"b", false, true, true}}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := endpointNode(tc.now, tc.planes); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
