package command_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// TestUpgradeOfFollower upgrades a cluster that has its version from a ClusterTemplate. It does not get the versions of the template any more.
func TestUpgradeOfFollower(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(`{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: follower}, spec: {data: {}, templateRef: {name: standard}, topology: {controlplane: {replicas: 1}}}}`)
	given := `{"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster", "spec": {"topology": {"version": "1.33"}}, "metadata": {"annotations": {
  "vitistack.io/cluster-template": "{\"name\": \"standard\", \"revision\": \"a\", \"cluster\": {\"topology\": {\"version\": \"1.33\"}}}"}}}`
	u, err := e.In(cluster.MustFindKind("kc"), e.namespace).Patch(t.Context(), "follower", types.ApplyPatchType, []byte(given), metav1.PatchOptions{FieldManager: v1alpha1.FieldManagerTemplate})
	if err != nil {
		t.Fatal(err)
	}
	e.setStatus(u, map[string]any{"observedGeneration": u.GetGeneration(), "version": "1.33.1", "talosVersion": "1.13.9"})
	for _, more := range [][]string{{"--dry-run"}, nil} {
		if _, errs, code := e.run(append([]string{"upgrade", "follower", "--to", "1.34"}, more...)...); code != 0 || !strings.Contains(errs, "ClusterTemplate standard does not change topology.version of this cluster any more") {
			t.Errorf("%v: got %d, %s", more, code, errs)
		}
	}
	if _, errs, code := e.run("upgrade", "follower", "--to", "1.34.13"); code != 0 || strings.Contains(errs, "ClusterTemplate") {
		t.Errorf("the cluster has a version of its own already: %d, %s", code, errs)
	}
}

// TestCredentialsExpire has the credentials of the user expire while upgrade --wait and status --watch follow. Both end with an error that says what to do, and do
// not repeat the refusal.
func TestCredentialsExpire(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"upgrade", "shop", "--to", "1.34", "--wait"}, {"status", "--watch"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			e.create(`{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: shop}, spec: {data: {}, topology: {version: "1.33", controlplane: {replicas: 1}}},
  status: {version: 1.33.1, talosVersion: 1.13.9}}`)
			expire := e.accessByProxy()
			time.AfterFunc(3*time.Second, expire)
			began := time.Now()
			_, errs, code := e.run(args...)
			if code == 0 || !strings.Contains(errs, "does not accept your credentials") || !strings.Contains(errs, "log in again") {
				t.Errorf("got %d and %q, want an error that says to log in again", code, errs)
			}
			if n := strings.Count(errs, "Note:"); n > 1 {
				t.Errorf("the refusal is repeated %d times: %s", n, errs)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it ended after %s", took)
			}
		})
	}
}
