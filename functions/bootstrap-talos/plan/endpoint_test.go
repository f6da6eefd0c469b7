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
		"New":      {"the first one will have it", "", []EndpointNode{{"a", false, true, true}, {"b", true, true, false}}, "a"},
		"TooEarly": {"the first one does not run yet", "", []EndpointNode{{"b", true, true, false}}, ""},
		"Same":     {"everybody knows it", "b", []EndpointNode{{"a", true, true, true}, {"b", true, true, false}}, "b"},
		"Down":     {"it comes back", "b", []EndpointNode{{"a", true, true, true}, {"b", false, true, false}}, "b"},
		"Leaves":   {"another one takes its place", "a", []EndpointNode{{"b", true, true, false}, {"a", true, false, false}}, "b"},
		"Gone":     {"its machine is gone, or has another address", "a", []EndpointNode{{"b", false, true, true}, {"c", true, true, false}}, "c"},
		"Last":     {"nobody can take its place", "a", []EndpointNode{{"b", false, true, true}}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := ChooseEndpointNode(tc.now, tc.planes); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
