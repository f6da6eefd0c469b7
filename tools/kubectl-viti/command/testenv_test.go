package command_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
	"github.com/vitistack/stack/tools/kubectl-viti/command"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// env is a management cluster with a namespace of its own, and a user with a kubeconfig.
type env struct {
	*testing.T
	server     *apiserver.Server
	namespace  string
	kubeconfig string
	*cluster.Connection
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{T: t, server: apiserver.Start(t), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	e.server.Install(t)
	e.namespace = e.server.Namespace(t)
	config := e.server.Config()
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData, CertificateAuthority: config.CAFile}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, ClientCertificate: config.CertFile, ClientKey: config.KeyFile, Token: config.BearerToken,
	}
	file.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: e.namespace}
	file.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*file, e.kubeconfig); err != nil {
		t.Fatal(err)
	}
	var err error
	if e.Connection, err = cluster.NewConnection(config, e.namespace); err != nil {
		t.Fatal(err)
	}
	return e
}

// create creates objects of a stream of YAML in the namespace, with their status.
func (e *env) create(stream string) {
	e.Helper()
	for _, doc := range strings.Split(stream, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(doc, "NAMESPACE", e.namespace)), &u.Object); err != nil {
			e.Fatalf("%v in\n%s", err, doc)
		}
		k := kindOf(u)
		if !k.ClusterScoped {
			u.SetNamespace(e.namespace)
		}
		status := u.Object["status"]
		created, err := e.In(k, e.namespace).Create(e.Context(), u, metav1.CreateOptions{})
		if err != nil {
			e.Fatalf("create %s %s: %v", u.GetKind(), u.GetName(), err)
		}
		if k.ClusterScoped {
			e.Cleanup(func() { _ = e.In(k, "").Delete(context.Background(), u.GetName(), metav1.DeleteOptions{}) })
		}
		if status != nil {
			e.setStatus(created, status)
		}
	}
}

func (e *env) setStatus(u *unstructured.Unstructured, status any) {
	e.Helper()
	u.Object["status"] = status
	if _, err := e.In(kindOf(u), e.namespace).UpdateStatus(e.Context(), u, metav1.UpdateOptions{}); err != nil {
		e.Fatalf("write the status of %s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

func kindOf(u *unstructured.Unstructured) cluster.Kind {
	if k, err := cluster.FindKind(u.GetKind()); err == nil {
		return k
	}
	gv := u.GroupVersionKind()
	return cluster.Kind{Name: gv.Kind, Resource: strings.ToLower(gv.Kind) + "s", Group: gv.Group, Version: gv.Version, ClusterScoped: strings.HasPrefix(gv.Kind, "ClusterRole")}
}

// accessByProxy has the user reach the API server by a proxy. After expire, the proxy answers as the API server does for credentials that have expired.
func (e *env) accessByProxy() (expire func()) {
	e.Helper()
	config := e.server.Config()
	transport, err := rest.TransportFor(config)
	if err != nil {
		e.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		e.Fatal(err)
	}
	var isExpired atomic.Bool
	forward := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isExpired.Load() {
			forward.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`)
	}))
	e.Cleanup(proxy.Close)
	file := clientcmdapi.NewConfig()
	file.Clusters["c"], file.AuthInfos["u"] = &clientcmdapi.Cluster{Server: proxy.URL}, &clientcmdapi.AuthInfo{}
	file.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: e.namespace}
	file.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*file, e.kubeconfig); err != nil {
		e.Fatal(err)
	}
	return func() {
		isExpired.Store(true)
		proxy.CloseClientConnections()
	}
}

// run runs a command and returns what it wrote and the exit code.
func (e *env) run(args ...string) (out, errs string, code int) {
	e.Helper()
	var stdout, stderr bytes.Buffer
	code = command.Run(e.Context(), "dev", append([]string{"--kubeconfig", e.kubeconfig}, args...), command.Streams{In: strings.NewReader(""), Out: &stdout, Err: &stderr})
	return stdout.String(), stderr.String(), code
}

// must runs a command that succeeds, and returns what it wrote.
func (e *env) must(args ...string) string {
	e.Helper()
	out, errs, code := e.run(args...)
	if code != 0 {
		e.Fatalf("kubectl viti %s ends with %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

// refusal is a command that fails with a message that contains want.
type refusal struct {
	because string
	args    []string
	want    string
}

// refuses runs commands that fail.
func (e *env) refuses(all []refusal) {
	e.Helper()
	for _, r := range all {
		if _, errs, code := e.run(r.args...); code == 0 || !strings.Contains(errs, r.want) {
			e.Errorf("%s: got %d, %q, want %q", r.because, code, errs, r.want)
		}
	}
}

// get returns a field of an object.
func (e *env) get(kind, name string, path ...string) any {
	e.Helper()
	u, err := e.Get(e.Context(), cluster.MustFindKind(kind), name)
	if err != nil {
		e.Fatal(err)
	}
	value, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil {
		e.Fatal(err)
	}
	return value
}
