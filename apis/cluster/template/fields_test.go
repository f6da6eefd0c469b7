package template_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestOwnsAny(t *testing.T) {
	t.Parallel()
	const version, addon = `{"f:spec":{"f:topology":{"f:version":{}}}}`, `{"f:spec":{"f:addons":{"k:{\"name\":\"cilium\"}":{".":{},"f:name":{},"f:url":{}}}}}`
	for name, tc := range map[string]struct {
		why               string
		template, another string
		fields            []string
		want              bool
	}{
		"Template":  {"only the template owns the field", version, `{"f:spec":{"f:templateRef":{"f:name":{}}}}`, []string{"topology.version"}, true},
		"OneOf":     {"the template owns one of the fields", version, `{}`, []string{"talos.version", "topology.version"}, true},
		"Part":      {"the template owns a part of the field", addon, `{}`, []string{"addons"}, true},
		"Other":     {"the template owns another field", version, `{}`, []string{"talos.version"}, false},
		"Manifest":  {"the manifest has the field too", version, version, []string{"topology.version"}, false},
		"Both":      {"the manifest has another of the fields", addon, version, []string{"addons", "topology.version"}, false},
		"PartOther": {"the manifest has an add-on of its own", addon, addon, []string{"addons"}, false},
		"NotRead":   {"managedFields that cannot be read say nothing", version, `{"f:spec":3}`, []string{"topology.version"}, false},
		"None":      {"a reason about no field", version, `{}`, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: v1alpha1.FieldManagerTemplate, FieldsV1: metav1.NewFieldsV1(tc.template)},
				{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(tc.another)},
			}}}
			if got := template.OwnsAny(cluster, tc.fields...); got != tc.want {
				t.Errorf("%s: %t, want %t", tc.why, got, tc.want)
			}
		})
	}
}
