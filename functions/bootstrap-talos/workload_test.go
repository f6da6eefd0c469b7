package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/vitistack/stack/apis/kubeconfig"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
)

// TestKubeconfigOfATenant has a tenant change the kubeconfig Secret of their cluster so that the
// function would send its own token to the tenant's server. The kubeconfig is invalid and is replaced.
// Until then the function connects to no server with it.
func TestKubeconfigOfATenant(t *testing.T) {
	t.Parallel()
	asked := false
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("the function's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	doc := []byte("current-context: x\nclusters: [{name: c, cluster: {server: '" + server.URL + "', insecure-skip-tls-verify: true}}]\n" +
		"contexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {tokenFile: '" + token + "'}}]\n")
	bundle, err := talos.NewBundle(time.Now(), config.TalosVersion1_13, v1alpha1.ServiceAccountKeyECDSA)
	if err != nil {
		t.Fatal(err)
	}
	if talos.IsKubeconfigCurrent(doc, server.URL, &talos.Keys{Present: bundle}, time.Now()) {
		t.Error("it serves")
	}
	if _, err := workload.Connect(doc, 6443); !errors.Is(err, kubeconfig.ErrReachesHere) || strings.Contains(err.Error(), token) || asked {
		t.Errorf("asked %t, %v", asked, err)
	}
}

// TestRedirectingWorkload has the API of a cluster redirect the function to another server.
func TestRedirectingWorkload(t *testing.T) {
	t.Parallel()
	followed := false
	second := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	t.Cleanup(second.Close)
	first := httptest.NewServer(http.RedirectHandler(second.URL, http.StatusFound))
	t.Cleanup(first.Close)
	w, err := workload.Connect([]byte("current-context: x\nclusters: [{name: c, cluster: {server: '"+first.URL+"'}}]\n"+
		"contexts: [{name: x, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"), 6443)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var r workload.StatusError
	if _, err := w.Nodes(t.Context()); !errors.As(err, &r) || r.Code != http.StatusFound || followed {
		t.Errorf("followed %t, %v", followed, err)
	}
}
