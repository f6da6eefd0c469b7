package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
)

// TestRequestIsDocumented compares the event with the documentation for ticketing systems.
func TestRequestIsDocumented(t *testing.T) {
	t.Parallel()
	kc := example(t)
	kc.UID, kc.Generation = "0f5b", 4
	kc.Status.Approval = plan.NextApproval(nil, v1alpha1.ApprovalCreation, kc.Generation, kc.Spec.Data.Workorder, plan.WantedPools(kc.Spec.Topology))
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ap := &approvalRequester{now: func() time.Time { return now }}
	e, err := ap.request(kc)
	if err != nil {
		t.Fatal(err)
	}
	var got events.WorkorderRequested
	if err := json.Unmarshal(e.Data(), &got); err != nil {
		t.Fatal(err)
	}
	want := events.WorkorderRequested{
		Object: events.Object{UID: "0f5b", Namespace: "default", Name: "simple-cluster"}, Workorder: "simple-workorder", Generation: 4,
		ClusterID: "simple-cluster-id", Environment: "dev", Project: "simple-project", Workspace: "simple-workspace", Version: "1.33", ControlPlanes: 1, Workers: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if e.ID() != "0f5b.workorder.4.1767323040" || e.Subject() != "/apis/vitistack.io/v1alpha1/namespaces/default/kubernetesclusters/simple-cluster" {
		t.Errorf("got %s about %s", e.ID(), e.Subject())
	}
	for later, repeated := range map[time.Duration]bool{30 * time.Second: true, time.Minute: false} {
		now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(later)
		if again, err := ap.request(kc); err != nil || (again.ID() == e.ID()) != repeated {
			t.Errorf("after %s the request is %s, %v: a repeated request needs another ID, because the answer to the first may be lost", later, again.ID(), err)
		}
	}
}

// example returns the cluster of the documentation's first example.
func example(t *testing.T) *v1alpha1.KubernetesCluster {
	t.Helper()
	doc, err := apis.Examples.ReadFile("examples/simple-kubernetescluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kc := &v1alpha1.KubernetesCluster{}
	if err := yaml.UnmarshalStrict(doc, kc); err != nil {
		t.Fatal(err)
	}
	kc.Namespace = "default"
	return kc
}
