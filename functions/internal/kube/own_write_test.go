package kube_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

func TestIsOwnStatusWrite(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	entry := func(manager, subresource string, second int) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(start.Add(time.Duration(second) * time.Second))
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at}
	}
	own := []metav1.ManagedFieldsEntry{entry("kubectl", "", 0), entry("bootstrap-talos", "status", 2)}
	for name, tc := range map[string]struct {
		because string
		fields  []metav1.ManagedFieldsEntry
		ties    bool
		want    bool
		// deleted is the second of the deletion, or zero.
		deleted int
	}{
		"Own":           {because: "its status is the last write", fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 0), entry("bootstrap-talos", "", 1), entry("bootstrap-talos", "status", 2)}, ties: false, want: true},
		"SameSecond":    {because: "the user may have written later", fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 2), entry("bootstrap-talos", "status", 2)}, ties: false, want: false},
		"Ties":          {because: "the function would have nothing to do for the other change", fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 2), entry("bootstrap-talos", "status", 2)}, ties: true, want: true},
		"LaterTies":     {because: "a user has changed the object since", fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 3), entry("bootstrap-talos", "status", 2)}, ties: true, want: false},
		"Later":         {because: "a user has changed the object since", fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 3), entry("bootstrap-talos", "status", 2)}, ties: false, want: false},
		"OtherStatus":   {because: "another program has written the status", fields: []metav1.ManagedFieldsEntry{entry("gateway", "status", 2), entry("bootstrap-talos", "status", 1)}, ties: false, want: false},
		"OwnSpec":       {because: "the function has changed the spec", fields: []metav1.ManagedFieldsEntry{entry("bootstrap-talos", "", 3), entry("bootstrap-talos", "status", 2)}, ties: false, want: false},
		"NoStatus":      {because: "the function has not seen the object", fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 0)}, ties: false, want: false},
		"Undated":       {because: "nothing says when the user wrote", fields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}, entry("bootstrap-talos", "status", 2)}, ties: false, want: false},
		"NoFields":      {because: "the API server has removed the fields", fields: nil, ties: false, want: false},
		"ServerApplied": {because: "a server-side apply of the same name is not the function's", fields: []metav1.ManagedFieldsEntry{{Manager: "bootstrap-talos", Subresource: "status", Operation: metav1.ManagedFieldsOperationApply, Time: &metav1.Time{Time: start}}}, ties: false, want: false},
		"Deleted":       {because: "a deletion leaves no entry in the fields", fields: own, deleted: 3},
		"DeletedTies":   {because: "the deletion may be later", fields: own, ties: true, deleted: 2},
		"Deleting":      {because: "the function has seen the deletion", fields: own, deleted: 1, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.fields}}
			if tc.deleted > 0 {
				kc.DeletionTimestamp = new(metav1.NewTime(start.Add(time.Duration(tc.deleted) * time.Second)))
			}
			if got := kube.IsOwnStatusWrite(kc, "bootstrap-talos", tc.ties); got != tc.want {
				t.Errorf("%s: got %v", tc.because, got)
			}
		})
	}
}

func TestIsOwnFirstWrite(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	entry := func(manager, subresource string, second int) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(start.Add(time.Duration(second) * time.Second))
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at}
	}
	for name, tc := range map[string]struct {
		because    string
		generation int64
		fields     []metav1.ManagedFieldsEntry
		want       bool
	}{
		"Own":         {because: "its finalizer is the last write", generation: 1, fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 0), entry("bootstrap-talos", "", 1)}, want: true},
		"SameSecond":  {because: "the user has created the object", generation: 1, fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 1), entry("bootstrap-talos", "", 1)}, want: true},
		"Later":       {because: "a user has changed the object since", generation: 1, fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 2), entry("bootstrap-talos", "", 1)}},
		"OtherStatus": {because: "another program has written the status since", generation: 1, fields: []metav1.ManagedFieldsEntry{entry("bootstrap-talos", "", 1), entry("gateway", "status", 2)}},
		"OwnStatus":   {because: "the function has written the status since", generation: 1, fields: []metav1.ManagedFieldsEntry{entry("bootstrap-talos", "", 1), entry("bootstrap-talos", "status", 2)}},
		"OtherSpec":   {because: "the spec has changed", generation: 2, fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 1), entry("bootstrap-talos", "", 1)}},
		"New":         {because: "the function has not written it", generation: 1, fields: []metav1.ManagedFieldsEntry{entry("kubectl", "", 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Generation: tc.generation, ManagedFields: tc.fields}}
			if got := kube.IsOwnFirstWrite(kc, "bootstrap-talos"); got != tc.want {
				t.Errorf("%s: got %v", tc.because, got)
			}
		})
	}
}
