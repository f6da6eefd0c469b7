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
	for name, tc := range map[string]struct {
		because string
		fields  []metav1.ManagedFieldsEntry
		ties    bool
		want    bool
	}{
		"Own":           {"its status is the last write", []metav1.ManagedFieldsEntry{entry("kubectl", "", 0), entry("bootstrap-talos", "", 1), entry("bootstrap-talos", "status", 2)}, false, true},
		"SameSecond":    {"the user may have written later", []metav1.ManagedFieldsEntry{entry("kubectl", "", 2), entry("bootstrap-talos", "status", 2)}, false, false},
		"Ties":          {"the function would have nothing to do for the other change", []metav1.ManagedFieldsEntry{entry("kubectl", "", 2), entry("bootstrap-talos", "status", 2)}, true, true},
		"LaterTies":     {"a user has changed the object since", []metav1.ManagedFieldsEntry{entry("kubectl", "", 3), entry("bootstrap-talos", "status", 2)}, true, false},
		"Later":         {"a user has changed the object since", []metav1.ManagedFieldsEntry{entry("kubectl", "", 3), entry("bootstrap-talos", "status", 2)}, false, false},
		"OtherStatus":   {"another program has written the status", []metav1.ManagedFieldsEntry{entry("gateway", "status", 2), entry("bootstrap-talos", "status", 1)}, false, false},
		"OwnSpec":       {"the function has changed the spec", []metav1.ManagedFieldsEntry{entry("bootstrap-talos", "", 3), entry("bootstrap-talos", "status", 2)}, false, false},
		"NoStatus":      {"the function has not seen the object", []metav1.ManagedFieldsEntry{entry("kubectl", "", 0)}, false, false},
		"Undated":       {"nothing says when the user wrote", []metav1.ManagedFieldsEntry{{Manager: "kubectl"}, entry("bootstrap-talos", "status", 2)}, false, false},
		"NoFields":      {"the API server has removed the fields", nil, false, false},
		"ServerApplied": {"a server-side apply of the same name is not the function's", []metav1.ManagedFieldsEntry{{Manager: "bootstrap-talos", Subresource: "status", Operation: metav1.ManagedFieldsOperationApply, Time: &metav1.Time{Time: start}}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.fields}}
			if got := kube.IsOwnStatusWrite(kc, "bootstrap-talos", tc.ties); got != tc.want {
				t.Errorf("%s: got %v", tc.because, got)
			}
		})
	}
}
