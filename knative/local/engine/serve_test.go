package engine

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/vitistack/stack/knative/local/process"
	"github.com/vitistack/stack/knative/local/runner"
)

func TestNearby(t *testing.T) {
	t.Parallel()
	log, err := process.OpenLog(filepath.Join(t.TempDir(), "function.log"), logLimit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	stopped := runner.New(process.NewSpawner(), log, runner.Spec{Name: "function"})
	stopped.Close()
	n := nearby{"127.0.0.1:1234": stopped}
	cases := map[string]struct {
		reason, url string
		code        int // 0: it is sent over the network
	}{
		"Function":  {reason: "the function itself answers", url: "http://127.0.0.1:1234/path", code: http.StatusServiceUnavailable},
		"OtherPort": {reason: "the port of another program", url: "http://127.0.0.1:12345/"},
		"OtherHost": {reason: "the host of another machine", url: "http://192.0.2.1:1234/"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response, err := n.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPost, tc.url, nil))
			if tc.code == 0 {
				if !errors.Is(err, http.ErrSkipAltProtocol) {
					t.Errorf("%s: got error %v", tc.reason, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := response.Body.Close(); err != nil {
				t.Error(err)
			}
			if response.StatusCode != tc.code {
				t.Errorf("%s: got %d, want %d", tc.reason, response.StatusCode, tc.code)
			}
		})
	}
}
