package plan

import (
	"testing"
)

func TestChooseEndpointNode(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, now string
		planes      []EndpointNode
		want        string
	}{
		"New":      {"the first control plane becomes the endpoint", "", []EndpointNode{{"a", false, true, true}, {"b", true, true, false}}, "a"},
		"TooEarly": {"the first control plane does not run yet", "", []EndpointNode{{"b", true, true, false}}, ""},
		"Same":     {"clients know the present endpoint", "b", []EndpointNode{{"a", true, true, true}, {"b", true, true, false}}, "b"},
		"Down":     {"a node that is down comes back", "b", []EndpointNode{{"a", true, true, true}, {"b", false, true, false}}, "b"},
		"Removed":  {"another one replaces a node that is being removed", "a", []EndpointNode{{"b", true, true, false}, {"a", true, false, false}}, "b"},
		"Gone":     {"its machine is deleted, or has another address", "a", []EndpointNode{{"b", false, true, true}, {"c", true, true, false}}, "c"},
		"Last":     {"no other node can replace it", "a", []EndpointNode{{"b", false, true, true}}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ChooseEndpointNode(tc.now, tc.planes); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
