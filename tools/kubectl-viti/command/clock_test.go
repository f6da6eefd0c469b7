package command_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestWrongClock looks at an object with an API server whose clock is two hours ahead of the user's. The object has waited for these two hours.
func TestWrongClock(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	now := time.Now().UTC().Format(time.RFC3339)
	e.create(strings.ReplaceAll(`{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: shop}, spec: {data: {}, topology: {version: "1.33", controlplane: {replicas: 1}}},
  status: {observedGeneration: 1, phase: Provisioning, conditions: [{type: Ready, status: "False", reason: WaitingForMachines, message: "waiting for shop-cp-0", lastTransitionTime: "NOW"}]}}`, "NOW", now))
	target, err := url.Parse(e.server.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(e.server.Config())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport,
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("Date", time.Now().Add(2*time.Hour).UTC().Format(http.TimeFormat))
			return nil
		},
	})
	t.Cleanup(proxy.Close)
	ahead := filepath.Join(t.TempDir(), "ahead")
	if err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: proxy.URL}}, CurrentContext: "x",
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", Namespace: e.namespace}},
	}, ahead); err != nil {
		t.Fatal(err)
	}
	if out := e.must("status"); !strings.Contains(out, "Nothing needs attention") {
		t.Errorf("the cluster has just begun to wait: %s", out)
	}
	for _, args := range [][]string{{"status"}, {"why", "kubernetescluster/shop"}} {
		if out := e.must(append(args, "--kubeconfig", ahead)...); !strings.Contains(out, "for 2h") && !strings.Contains(out, "for 120m") {
			t.Errorf("kubectl viti %s: %s", strings.Join(args, " "), out)
		}
	}
}
