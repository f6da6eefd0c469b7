package kube_test

import (
	"net/http"
	"testing"
)

func TestBrokerURL(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "platform")
	for name, tc := range map[string]struct {
		reason, body string
		status       int
		want         string
		fails        bool
	}{
		"Ready":   {reason: "the address is in the status", status: 200, body: `{"status":{"address":{"url":"http://broker.example.com/platform/vitistack"}}}`, want: "http://broker.example.com/platform/vitistack"},
		"New":     {reason: "the Broker has no status yet", status: 200, body: `{"spec":{}}`},
		"Missing": {reason: "the Broker does not exist yet", status: 404, body: `{"kind":"Status","code":404,"reason":"NotFound"}`},
		"Refused": {reason: "the Role is missing", status: 403, body: `{"kind":"Status","code":403,"reason":"Forbidden"}`, fails: true},
	} {
		client := leases(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis/eventing.knative.dev/v1/namespaces/platform/brokers/vitistack" {
				t.Errorf("%s: asked for %s", name, r.URL.Path)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tc.status)
			_, _ = w.Write([]byte(tc.body))
		})
		if got, err := client.BrokerURL(t.Context()); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: %s: got %q, %v", name, tc.reason, got, err)
		}
	}
}
