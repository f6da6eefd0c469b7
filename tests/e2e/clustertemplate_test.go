package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

const (
	clusterTemplate = `apiVersion: vitistack.io/v1alpha1
kind: ClusterTemplate
metadata: {name: standard}
spec:
  cluster: {topology: {version: "1.33", controlplane: {replicas: 1, template: small, providerRef: {name: kubevirt}}}}
  rollout: {waves: [{name: test, selector: {matchLabels: {environment: test}}, pauseAfter: 10s}, {name: prod, selector: {matchLabels: {environment: prod}}}]}
`
	templatedCluster = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: %s, labels: {environment: %s}}
spec: {data: {}, templateRef: {name: standard}}
`
)

// TestClusterTemplate rolls a version and a patch out to three clusters in two waves. The patch is missing in the
// namespace of the second cluster, which stops the rollout until it exists.
func TestClusterTemplate(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.Apply("", clusterTemplate)
	members := []struct{ namespace, name, wave string }{{"b", "canary", "test"}, {"a", "web", "prod"}, {"b", "shop", "prod"}}
	for i, namespace := range []string{"a", "b"} {
		e.Apply(namespace, strings.Replace(e.StaticNetwork("network", 10+100*i, 100+100*i), "vlanId: 100", fmt.Sprintf("vlanId: %d", 100+i), 1))
	}
	for _, m := range members {
		e.Apply(m.namespace, fmt.Sprintf(templatedCluster, m.name, m.wave))
	}
	machines := map[string]types.UID{}
	for _, m := range members {
		e.UntilPhase(engine.KubernetesClusters, m.namespace, m.name, "Running")
		machines[m.name] = e.Get(engine.Machines, m.namespace, m.name+"-cp-0").GetUID()
	}
	const patch = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ntp}\ndata: {ntp.yaml: \"machine: {sysctls: {vm.swappiness: '10'}}\"}\n"
	e.Apply("b", patch)
	next := `{"spec": {"cluster": {"topology": {"version": "1.34"}, "talos": {"patches": {"all": ["ntp"]}}}}}`
	if _, err := e.Client.Resource(engine.ClusterTemplates).Patch(t.Context(), "standard", types.MergePatchType, []byte(next), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	untilTemplate(t, e, "the first wave is finished", "WaveFinished")
	versions := func() string {
		var all []string
		for _, m := range members {
			version, _, _ := unstructured.NestedString(e.Get(engine.KubernetesClusters, m.namespace, m.name).Object, "spec", "topology", "version")
			all = append(all, version)
		}
		return strings.Join(all, " ")
	}
	if got := versions(); got != "1.34 1.33 1.33" {
		t.Errorf("versions %s after the first wave, want the change in canary only", got)
	}
	finished := templateStatus(t, e).WaveFinishedTime.Time

	untilTemplate(t, e, "the second wave stops at the cluster without the ConfigMap", "RolloutStopped", "KubernetesCluster a/web", "PatchNotFound")
	if pause := time.Since(finished); pause < 10*time.Second {
		t.Errorf("the second wave starts %s after the end of the first, before pauseAfter", pause)
	}
	if got := versions(); got != "1.34 1.34 1.33" {
		t.Errorf("versions %s while the rollout is stopped", got)
	}
	if s := templateStatus(t, e); s.Clusters != 3 || s.CurrentClusters != 1 || s.UpdatingClusters != 1 || s.WaitingClusters != 1 || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled) {
		t.Errorf("status %+v", s)
	}

	e.Apply("a", patch)
	untilTemplate(t, e, "all clusters have the template", "ClustersCurrent")
	if got := versions(); got != "1.34 1.34 1.34" {
		t.Errorf("versions %s", got)
	}
	for _, m := range members {
		if uid := e.Get(engine.Machines, m.namespace, m.name+"-cp-0").GetUID(); uid != machines[m.name] {
			t.Errorf("the machine of %s was replaced", m.name)
		}
	}
}

// untilTemplate waits until Ready of the ClusterTemplate has a reason, with these words in its message.
func untilTemplate(t *testing.T, e *engine.Engine, what, reason string, words ...string) {
	t.Helper()
	feed.Until(t, what, func() (bool, string) {
		ready := meta.FindStatusCondition(templateStatus(t, e).Conditions, v1alpha1.ConditionReady)
		if ready == nil {
			return false, "no condition"
		}
		ok := ready.Reason == reason
		for _, w := range words {
			ok = ok && strings.Contains(ready.Message, w)
		}
		said, _ := json.Marshal(ready)
		return ok, string(said)
	})
}

func templateStatus(t *testing.T, e *engine.Engine) v1alpha1.ClusterTemplateStatus {
	t.Helper()
	ct := &v1alpha1.ClusterTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(e.Get(engine.ClusterTemplates, "", "standard").Object, ct); err != nil {
		t.Fatal(err)
	}
	return ct.Status
}
