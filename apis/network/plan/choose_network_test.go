package plan

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha2"
)

func TestChooseNetwork(t *testing.T) {
	t.Parallel()
	named := func(names ...string) (items []v1alpha2.NetworkNamespace) {
		for _, n := range names {
			items = append(items, v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Name: n}})
		}
		return items
	}
	cases := map[string]struct {
		reason string
		name   string
		items  []v1alpha2.NetworkNamespace
		want   string
		why    Unresolved
	}{
		"None":    {reason: "there is no network to select", why: Unresolved{"NoNetworkNamespace", "there is no NetworkNamespace in namespace a: create one"}},
		"One":     {reason: "the only network is selected", items: named("x"), want: "x"},
		"Named":   {reason: "the name decides among several", name: "y", items: named("y", "x"), want: "y"},
		"Missing": {reason: "a name without an object is no network", name: "z", items: named("x"), why: Unresolved{"NetworkNamespaceNotFound", "there is no NetworkNamespace z in namespace a: create it, or use another one"}},
		"Two": {reason: "a guess would be wrong half of the time", items: named("y", "x"), why: Unresolved{"NetworkNamespaceAmbiguous",
			"namespace a has several NetworkNamespaces: write one of x, y into networkNamespaceName"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ChooseNetwork("a", tc.name, tc.items)
			var why Unresolved
			errors.As(err, &why)
			if why != tc.why || (got != nil && got.Name != tc.want) || (got == nil && tc.want != "") {
				t.Errorf("%s: got %v, %v", tc.reason, got, err)
			}
		})
	}
}
