package health

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		paths  map[string]int
		want   string
	}{
		"Model":    {"it has the operator status model", map[string]int{"/status": 200}, inventory.Healthy},
		"None":     {"it says only whether it is well", map[string]int{"/status": 404, "/healthz": 200}, inventory.Healthy},
		"Function": {"it takes events at every path, and nothing else", map[string]int{"/status": 405, "/healthz": 200}, inventory.Healthy},
		"Ill":      {"it says that it is not well", map[string]int{"/status": 404, "/healthz": 500}, inventory.Unhealthy},
		"Broken":   {"it should know better", map[string]int{"/status": 500, "/healthz": 200}, inventory.Unhealthy},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(tc.paths[r.URL.Path]) }))
			defer server.Close()
			if got, err := probe(t.Context(), server.URL+"/"); err != nil || got.Status != tc.want {
				t.Errorf("%s: got %s (%s), %v, want %s", tc.reason, got.Status, got.Message, err, tc.want)
			}
		})
	}
}
