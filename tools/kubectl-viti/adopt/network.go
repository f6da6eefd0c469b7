package adopt

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// decideNetwork decides whether a NetworkConfiguration keeps the addresses in its status, which another operator has
// allocated: static ones are written into its spec, so that allocate-ip allocates the same, and a reservation of Kea is
// adopted if unmarked allows that. ok is false if the stack has allocated them, or there are none.
func decideNetwork(nc *unstructured.Unstructured, allocated bool, unmarked bool) (r Row, ok bool) {
	r = Row{Kind: "NetworkConfiguration", Namespace: nc.GetNamespace(), Name: nc.GetName(), Action: Adopts}
	for _, f := range nc.GetFinalizers() {
		allocated = allocated || f == v1alpha1.FinalizerKea
	}
	statuses, _, _ := unstructured.NestedSlice(nc.Object, "status", "networkInterfaces")
	interfaces, _, _ := unstructured.NestedSlice(nc.Object, "spec", "networkInterfaces")
	if allocated || len(statuses) == 0 {
		return r, false
	}
	var found []string
	dhcp := false
	for _, s := range statuses {
		has, _ := s.(map[string]any)
		spec := networkNamed(interfaces, has["name"])
		for _, field := range []string{"ipv4Addresses", "ipv6Addresses"} {
			addresses, _ := has[field].([]any)
			if len(addresses) == 0 {
				continue
			}
			found = append(found, fmt.Sprint(addresses[0]))
			dhcp = dhcp || has["allocationMethod"] == "dhcp"
			if spec == nil {
				r.Action, r.Note = Decision, fmt.Sprintf("spec.networkInterfaces lacks interface %v: add it with its MAC address", has["name"])
			} else if spec[field] == nil {
				spec[field] = addresses[:1]
			}
		}
	}
	r.What = strings.Join(found, ", ")
	switch {
	case len(found) == 0:
		return r, false
	case r.Action == Decision:
	case dhcp && !unmarked:
		r.Action, r.Note = Decision, "Kea has its reservation without a mark: run the command with --unmarked to adopt it"
	case dhcp:
		r.Note = "kea-reserve adopts the reservation of the same MAC address and address"
		r.Patch = annotate(nc, v1alpha1.Unmarked)
	default:
		r.Note = "the interfaces request the addresses that they have"
		r.Patch = annotate(nc, "")
		r.Patch["spec"] = map[string]any{"networkInterfaces": interfaces}
	}
	return r, true
}

// keysOf returns the Secret with the keys of a cluster, as bootstrap-talos reads it, from the Secret of the talos-operator, or
// nil if that has none.
func keysOf(kc, secret *unstructured.Unstructured) *unstructured.Unstructured {
	bundle, _, _ := unstructured.NestedString(secret.Object, "data", "secrets.bundle")
	if bundle == "" {
		return nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"secrets.yaml": bundle},
		"metadata": map[string]any{
			"namespace": kc.GetNamespace(), "name": kc.GetName() + "-talos-secrets", "labels": map[string]any{v1alpha1.LabelClusterName: kc.GetName()},
			"ownerReferences": []any{map[string]any{
				"apiVersion": kc.GetAPIVersion(), "kind": kc.GetKind(), "name": kc.GetName(), "uid": string(kc.GetUID()), "controller": true,
			}},
		},
	}}
	return u
}
