package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// keeping returns a workload API whose node has two pods. It answers the eviction of the first pod
// with a code, and accepts that of the second.
func keeping(t *testing.T, code int, message string) (w *workload.Client, evicted func() []string) {
	t.Helper()
	var mu sync.Mutex
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch _, pod, _ := strings.Cut(strings.TrimSuffix(r.URL.Path, "/eviction"), "/pods/"); {
		case r.Method == http.MethodGet:
			_ = json.NewEncoder(w).Encode(corev1.PodList{Items: []corev1.Pod{
				{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "first"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "second"}},
			}})
		case pod == "first":
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(metav1.Status{Message: message})
		default:
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, pod)
			_, _ = w.Write([]byte("{}"))
		}
	}))
	t.Cleanup(server.Close)
	return workload.New(server.Client(), server.URL), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
}

// TestRefusedEviction has an upgrade and a removal evict a pod, and the API refuse it. Each reports
// the refusal and times out.
func TestRefusedEviction(t *testing.T) {
	t.Parallel()
	const kept = "pod a/first may not be moved: "
	for name, tc := range map[string]struct {
		reason  string
		code    int
		message string
		want    string
		others  bool
	}{
		"Budget":       {"a PodDisruptionBudget keeps it", 429, "it would violate the budget", kept + "it would violate the budget", true},
		"TwoBudgets":   {"the API server has no better code", 500, "more than one budget", kept + "more than one budget", true},
		"Webhook":      {"the usual code of an admission webhook", 403, `admission webhook "guard" denied the request`, kept + `admission webhook "guard" denied the request`, true},
		"BadRequest":   {"the code of a webhook without a code of its own", 400, "denied the request", kept + "denied the request", true},
		"Silent":       {"a refusal without a message is reported as well", 403, "", kept + "the workload API answered 403: ", true},
		"Gone":         {"the pod is gone", 404, "not found", "waiting for 2 pods to ", true},
		"Other":        {"another pod has its name", 409, "the UID in the precondition differs", "waiting for 2 pods to ", true},
		"Unknown":      {"the request is refused, not the pod", 401, "Unauthorized", "evict pod a/first: the workload API answered 401: Unauthorized", false},
		"NotReachable": {"the API server cannot reach etcd", 503, "etcdserver: no leader", "evict pod a/first: the workload API answered 503: etcdserver: no leader", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, evicted := keeping(t, tc.code, tc.message)
			late := time.Now().Add(plan.DefaultDrainTimeout + time.Minute)
			now := func() time.Time { return late }
			for _, o := range []outcome{upgradeOf(t, now, w), removalOf(t, now, w)} {
				if !o.ended || !strings.Contains(o.message, tc.want) {
					t.Errorf("%s: %s ended %t and said %q, want %q", tc.reason, o.what, o.ended, o.message, tc.want)
				}
			}
			if got := evicted(); slices.Contains(got, "second") != tc.others {
				t.Errorf("%s: evictions of other pods: %v, want %t", tc.reason, got, tc.others)
			}
		})
	}
}

// outcome is the result of a drain that takes too long.
type outcome struct {
	what, message string
	ended         bool
}

func upgradeOf(t *testing.T, now func() time.Time, w *workload.Client) outcome {
	t.Helper()
	c := &cluster{KubernetesCluster: &v1alpha1.KubernetesCluster{}}
	c.Status.Upgrade = &v1alpha1.UpgradeStatus{Kind: v1alpha1.UpgradeTalos, Nodes: []v1alpha1.NodeUpgrade{
		{Name: "n", Step: v1alpha1.UpgradeDraining, Since: metav1.Now(), Cordoned: true},
	}}
	c.observed.machines = map[string]*v1alpha1.Machine{"n": {}}
	turns := map[string]plan.UpgradeStep{"n": plan.UpgradeDrain}
	(&upgrader{now: now}).drainNodes(t.Context(), c, w, turns, []plan.UpgradeNode{{Member: plan.Member{Name: "n"}}})
	return outcome{"the upgrade", c.Status.Upgrade.Nodes[0].Message, turns["n"] == plan.UpgradeFail}
}

func removalOf(t *testing.T, now func() time.Time, w *workload.Client) outcome {
	t.Helper()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Labels: map[string]string{v1alpha1.LabelWorkerGroup: "pool"},
		Annotations: map[string]string{v1alpha1.AnnotationRemoving: time.Now().Format(time.RFC3339)},
	}}
	c := &cluster{KubernetesCluster: &v1alpha1.KubernetesCluster{}, connections: connections{workload: w}, observed: observed{apiAnswers: true, nodes: []plan.Node{{Name: "n", Ready: true, Cordoned: true}}}}
	c.plan.Groups = []plan.Group{{Pool: "pool"}}
	var blocked reconcile.UserError
	err := (&remover{now: now}).removeNode(t.Context(), c, m)
	return outcome{"the removal", err.Error(), errors.As(err, &blocked) && blocked.Reason == "DrainBlocked"}
}

// TestRefusedCordon has an admission policy refuse the first request of an upgrade.
func TestRefusedCordon(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{Message: "nodes are not yours"})
	}))
	t.Cleanup(server.Close)
	late := time.Now().Add(plan.DefaultDrainTimeout + time.Minute)
	o := upgradeOf(t, func() time.Time { return late }, workload.New(server.Client(), server.URL))
	if !o.ended || !strings.Contains(o.message, "nodes are not yours") {
		t.Errorf("%s ended %t and said %q", o.what, o.ended, o.message)
	}
}
