package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// TestForward sends requests for a host with a tagged path and two splits, and compares where they arrive.
func TestForward(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Host, r.Header.Get("Knative-Serving-Revision"), r.URL.Path)
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	ready, gone, name, port := true, false, "http", int32(netip.MustParseAddrPort(at.Host).Port())
	if err := indexer.Add(&discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one-abc", Labels: map[string]string{discoveryv1.LabelServiceName: "one"}},
		Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"192.0.2.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &gone}},
			{Addresses: []string{at.Hostname()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	one := split{Namespace: "ns", Name: "one", Percent: 100, AppendHeaders: map[string]string{"Knative-Serving-Revision": "one-1"}}
	none := split{Namespace: "ns", Name: "none", Percent: 100}
	tagged := path{Splits: []split{none}}
	tagged.Headers = map[string]struct {
		Exact string `json:"exact"`
	}{"Knative-Serving-Tag": {"old"}}
	rules := map[string]rule{"one.ns.svc": {Paths: []path{tagged, {Splits: []split{one}, RewriteHost: "inside"}}}}
	plane := &dataPlane{
		routes:    func(host string) (rule, bool) { r, ok := rules[host]; return r, ok },
		endpoints: listers.NewEndpointSliceLister(indexer), transport: newTransport(),
	}
	for name, tc := range map[string]struct {
		reason, host, path, tag string
		code                    int
		body                    string
	}{
		"Host":     {reason: "only the ready address gets requests", host: "one.ns.svc:80", path: "/a", code: 200, body: "inside one-1 /a"},
		"Tag":      {reason: "a header selects a path, whose Service has no endpoint", host: "one.ns.svc", path: "/", tag: "old", code: 503},
		"OtherTag": {reason: "a path whose header differs is skipped", host: "one.ns.svc", path: "/", tag: "new", code: 200, body: "inside one-1 /"},
		"Unknown":  {reason: "no KIngress has the host", host: "two.ns.svc", path: "/", code: 404},
		"Probe":    {reason: "the kubelet probes by the address of the pod", host: "10.0.0.1", path: "/ready", code: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := httptest.NewRequest(http.MethodGet, "http://"+tc.host+tc.path, nil)
			if tc.tag != "" {
				request.Header.Set("Knative-Serving-Tag", tc.tag)
			}
			recorder := httptest.NewRecorder()
			plane.ServeHTTP(recorder, request)
			body, _ := io.ReadAll(recorder.Body)
			if recorder.Code != tc.code || tc.body != "" && string(body) != tc.body {
				t.Errorf("%s: got %d %s, want %d %s", tc.reason, recorder.Code, body, tc.code, tc.body)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	t.Parallel()
	both := path{Splits: []split{{Name: "old", Percent: 90}, {Name: "new", Percent: 10}}}
	for number, want := range map[int]string{0: "old", 89: "old", 90: "new", 99: "new"} {
		if got := both.choose(number); got.Name != want {
			t.Errorf("%d of 100 goes to %s, want %s", number, got.Name, want)
		}
	}
	if got := (path{Splits: []split{{Name: "only"}}}).choose(50); got.Name != "only" {
		t.Errorf("a single split without percentage is not chosen: %v", got)
	}
}
