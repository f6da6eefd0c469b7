package kube_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/functions/internal/kube"
)

// TestReadingReplaces reads an object into a value that a caller has prepared for its creation.
func TestReadingReplaces(t *testing.T) {
	t.Parallel()
	mine, status := "mine", http.StatusOK
	client := leases(t, func(w http.ResponseWriter, r *http.Request) {
		body := `{"metadata":{"namespace":"default","name":"a","uid":"theirs"}}`
		if r.URL.Path == "/apis/coordination.k8s.io/v1/leases" {
			body = `{"items":[` + body + `]}`
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
	filled := coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "a", Labels: map[string]string{"is": mine}, Annotations: map[string]string{"is": mine},
			OwnerReferences: []metav1.OwnerReference{{Name: mine}}, Finalizers: []string{mine},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &mine},
	}
	live := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "theirs"}}
	one, list := filled.DeepCopy(), &coordinationv1.LeaseList{Items: []coordinationv1.Lease{*filled.DeepCopy()}}
	if err := client.Get(t.Context(), "default", "a", one); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&live, one); diff != "" {
		t.Errorf("an object has fields of the prepared value (-want +got):\n%s", diff)
	}
	if err := client.List(t.Context(), "", "", list); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]coordinationv1.Lease{live}, list.Items); diff != "" {
		t.Errorf("an item of a list has fields of an earlier one (-want +got):\n%s", diff)
	}
	status, one = http.StatusNotFound, filled.DeepCopy()
	if err := client.Get(t.Context(), "default", "a", one); !kube.NotFound(err) {
		t.Errorf("got %v, want a NotFound error", err)
	}
	if diff := cmp.Diff(&filled, one); diff != "" {
		t.Errorf("a value is changed although the object does not exist (-want +got):\n%s", diff)
	}
}
