package install

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/tests/stand/feed"
)

// leasesAreKept has allocate-ip write its own Leases, which is permitted, and other Leases.
// kea-reserve has one Lease, its lock.
func leasesAreKept(t *testing.T, c *cluster) {
	resource := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	theirs, ours := c.dynamic.Resource(resource).Namespace("default"), as(t, c, "allocate-ip").Resource(resource).Namespace("default")
	if _, err := as(t, c, "kea-reserve").Resource(resource).Namespace(namespace).Get(t.Context(), "vmid", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("kea-reserve reads a Lease of create-vm: %v", err)
	}
	lease := func(name, manager string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}}
		object.SetName(name)
		object.SetLabels(map[string]string{"vitistack.io/managed-by": manager})
		return object
	}
	election, err := theirs.Create(t.Context(), lease("election", "scheduler"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	taken := election.DeepCopy()
	taken.SetLabels(lease("", "allocate-ip").GetLabels())
	unlabelled := lease("heartbeat", "")
	unlabelled.SetLabels(nil)
	tests := map[string]struct {
		reason  string
		attempt func() error
	}{
		"Create": {"a leader election is not the function's own", func() error {
			_, err := ours.Create(t.Context(), unlabelled, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}},
		"Relabel": {"a Lease cannot be relabelled as an address", func() error {
			_, err := ours.Update(t.Context(), taken, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}},
		"Delete": {"a leader election must not be deleted", func() error {
			return ours.Delete(t.Context(), "election", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		}},
	}
	for name, tc := range tests {
		if err := refusal(t, tc.reason, onlyAddresses, tc.attempt); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v, want a refusal: %s", name, err, tc.reason)
		}
	}
	address, err := ours.Create(t.Context(), lease("10-0-0-1", "allocate-ip"), metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("claim an address: %v", err)
	}
	freed := address.DeepCopy()
	freed.SetAnnotations(map[string]string{"freed": "yes"})
	if _, err := ours.Update(t.Context(), freed, metav1.UpdateOptions{}); err != nil {
		t.Errorf("release an address: %v", err)
	}
	if err := ours.Delete(t.Context(), "10-0-0-1", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete the Lease of an address: %v", err)
	}
	if err := theirs.Delete(t.Context(), "election", metav1.DeleteOptions{}); err != nil {
		t.Errorf("other clients are affected: %v", err)
	}
}

// onlyAddresses is the message of the policy.
const onlyAddresses = "only the Leases of addresses"

// refusal repeats an attempt until a policy rejects it, because a new policy takes effect after a
// moment, and returns the error.
func refusal(t *testing.T, reason, message string, attempt func() error) (refused error) {
	t.Helper()
	feed.Until(t, "want a refusal: "+reason, func() (bool, string) {
		refused = attempt()
		return refused != nil && strings.Contains(refused.Error(), message), fmt.Sprint(refused)
	})
	return refused
}

// as returns a client with the identity of a function.
func as(t *testing.T, c *cluster, function string) dynamic.Interface {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":" + function
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
