package conformance

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestStoredNetworksStay stores networks with fields that have no effect, as an earlier version accepted them. Everything but these
// fields can be changed.
func TestStoredNetworksStay(t *testing.T) {
	t.Parallel()
	server := apiserver.StartAnother(t)
	server.Install(t, "networknamespaces")
	client, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespace := server.Namespace(t)
	const nn = "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: %s}\nspec: "
	cases := map[string]struct{ spec, change, refusal string }{
		"netbox":     {"{networkProvisioning: {netbox: {role: a}}}", `{"networkProvisioning":{"netbox":{"role":"b"}}}`, "set provider to netbox"},
		"nam":        {"{networkProvisioning: {provider: netbox, nam: {ipv4PrefixLength: 26}}}", `{"networkProvisioning":{"nam":{"ipv4PrefixLength":25}}}`, "set provider to nam"},
		"parameters": {"{networkProvisioning: {parameters: {a: b}}}", `{"networkProvisioning":{"parameters":{"a":"c"}}}`, "set provider to the name of the IPAM"},
		"length":     {"{networkProvisioning: {nam: {ipv6PrefixLength: 64}}}", `{"networkProvisioning":{"nam":{"ipv6PrefixLength":80}}}`, "remove ipv6PrefixLength"},
		"dns":        {"{ipAllocation: {type: dhcp, dhcp: {dns: ['2001:db8::53']}}}", `{"ipAllocation":{"dhcp":{"dns":["2001:db8::54"]}}}`, "leave IPv6 addresses out"},
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	definition := func(change func(map[string]any)) {
		t.Helper()
		crd, err := definitions.Get(t.Context(), "networknamespaces.vitistack.io", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(crd.Object)
		if _, err := definitions.Update(t.Context(), crd, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// await waits until the API server refuses an invalid network, or accepts it.
	await := func(refused bool) {
		t.Helper()
		feed.Until(t, "the definition of NetworkNamespaces is in use", func() (bool, string) {
			target, obj := read(t, client, namespace, strings.Replace(nn, "%s", "probe", 1)+cases["netbox"].spec)
			_, err := target.Create(t.Context(), obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return apierrors.IsInvalid(err) == refused, "it is not"
		})
	}
	var present any
	definition(func(crd map[string]any) {
		spec := crd["spec"].(map[string]any)
		present = runtime.DeepCopyJSONValue(spec["versions"])
		removeRules(spec["versions"])
	})
	await(false)
	for name, tc := range cases {
		target, obj := read(t, client, namespace, strings.Replace(nn, "%s", name, 1)+tc.spec)
		if _, err := target.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	definition(func(crd map[string]any) { crd["spec"].(map[string]any)["versions"] = present })
	await(true)
	for name, tc := range cases {
		target, _ := read(t, client, namespace, strings.Replace(nn, "%s", name, 1)+tc.spec)
		for _, change := range []string{`{"spec":{"protected":true}}`, `{"metadata":{"finalizers":["vitistack.io/test"]}}`} {
			if _, err := target.Patch(t.Context(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{}); err != nil {
				t.Errorf("%s: change %s is refused: %v", name, change, err)
			}
		}
		if _, err := target.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"provisioningPhase":"Ready"}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Errorf("%s: the status cannot be written: %v", name, err)
		}
		_, err := target.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":`+tc.change+`}`), metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refusal) {
			t.Errorf("%s: want change %s rejected with %q, got %v", name, tc.change, tc.refusal, err)
		}
	}
}

// removeRules removes the rules of a schema, also of the fields in it.
func removeRules(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "x-kubernetes-validations")
		for _, value := range v {
			removeRules(value)
		}
	case []any:
		for _, value := range v {
			removeRules(value)
		}
	}
}
