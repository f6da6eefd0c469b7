package plan

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestDefaultProvider(t *testing.T) {
	t.Parallel()
	provider := func(name string, marked bool) v1alpha1.MachineProvider {
		return v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineProviderSpec{Default: marked}}
	}
	cases := map[string]struct {
		reason string
		items  []v1alpha1.MachineProvider
		want   string
		why    string
		says   string
	}{
		"None":     {reason: "a machine needs a MachineProvider", why: "NoMachineProvider", says: "create one"},
		"Only":     {reason: "the only one is selected", items: []v1alpha1.MachineProvider{provider("a", false)}, want: "a"},
		"Marked":   {reason: "the default is selected", items: []v1alpha1.MachineProvider{provider("a", false), provider("b", true)}, want: "b"},
		"Unmarked": {reason: "without a default there is no choice", items: []v1alpha1.MachineProvider{provider("b", false), provider("a", false)}, why: "MachineProviderAmbiguous", says: "name one of a, b in spec.providerRef"},
		"Both":     {reason: "two defaults are no choice", items: []v1alpha1.MachineProvider{provider("a", true), provider("b", true)}, why: "MachineProviderAmbiguous", says: "unmark all but one"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := ChooseProvider(nil, "a", tc.items, nil)
			var f usererror.Error
			errors.As(err, &f)
			if f.Reason != tc.why || !strings.Contains(f.Message, tc.says) || (err == nil && p.Name != tc.want) {
				t.Errorf("%s: got %v, %v", tc.reason, p, err)
			}
		})
	}
}
