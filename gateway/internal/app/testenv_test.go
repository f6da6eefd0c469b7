package app

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/buffer"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/dsse"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/tests/fakeapi"
)

// env is a gateway with a fake API server.
type env struct {
	t    *testing.T
	api  *fakeapi.Server
	url  string
	log  *buffer.Buffer
	stop func() error
	// app is the parts, for tests that look inside.
	app *app
}

var plurals = []string{
	"networknamespaces", "networkconfigurations", "ipallocations", "machines", "machineproviders", "kubernetesclusters", "nodes",
}

// start runs a gateway with these settings until t ends.
func start(t *testing.T, settings ...string) *env {
	t.Helper()
	s := startCold(t, func(*fakeapi.Server) {}, settings...)
	s.waitReady()
	eventually(t, "the database", func() bool { return s.get("/health/database").StatusCode == http.StatusOK })
	return s
}

// startCold is start without waiting until the gateway is ready. It prepares the
// API server before the gateway starts.
func startCold(t *testing.T, prepare func(*fakeapi.Server), settings ...string) *env {
	t.Helper()
	s := &env{t: t, api: fakeapi.Start(t), log: &buffer.Buffer{}}
	s.api.Serve(plurals...)
	s.api.Put(t, "secrets", &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: platformNamespace(), Name: dsse.SecretName},
	})
	s.api.Put(t, "configmaps", &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: platformNamespace(), Name: dsse.ConfigMapName},
	})
	prepare(s.api)
	settings = append([]string{"--rateLimit.enabled=false", "--heartbeat.schedule=", "--resync.schedule=", "--state.dir=" + t.TempDir()}, settings...)
	c, err := config.Load(settings, func(string) (string, bool) { return "", false }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	if s.app, err = newApp("test", c, s.api.Config(), events.NewLogger(s.log, "debug")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.app.serve(ctx, listener, nil) }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("the gateway ended with: %v", err)
		}
	})
	return s
}

func (s *env) waitReady() {
	s.t.Helper()
	eventually(s.t, "the gateway to be ready", func() bool {
		res, err := http.Get(s.url + "/ready")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute)
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited too long for %s", what)
		}
	}
}

// reply is a response that has been read.
type reply struct {
	*http.Response
	body []byte
}

// do sends a request with headers given in pairs.
func (s *env) do(method, path, body string, headers ...string) reply {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	read, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	r := reply{res, read}
	checkContract(s.t, req, r)
	return r
}

func (s *env) get(path string, headers ...string) reply {
	s.t.Helper()
	return s.do(http.MethodGet, path, "", headers...)
}

// object is a body as JSON.
func (r reply) object(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(r.body, &v); err != nil {
		t.Fatalf("decode %s: %v", r.body, err)
	}
	return v
}

var born = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), CreationTimestamp: born, Generation: 1}
}

func aMachine(namespace, name, phase string) *v1alpha1.Machine {
	m := &v1alpha1.Machine{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine"}, ObjectMeta: meta(namespace, name)}
	m.Spec.Template = "small"
	m.Status.Phase = v1alpha1.MachinePhase(phase)
	return m
}

func aCluster(namespace, name, phase string) *v1alpha1.KubernetesCluster {
	c := &v1alpha1.KubernetesCluster{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster"}, ObjectMeta: meta(namespace, name)}
	c.Spec.Data.Provider = "talos"
	c.Spec.Topology.Version = "1.33"
	c.Spec.Topology.ControlPlane.Replicas = 1
	c.Status.Phase = v1alpha1.ClusterPhase(phase)
	return c
}

func aNetwork(namespace, name string) *v1alpha2.NetworkNamespace {
	n := &v1alpha2.NetworkNamespace{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha2", Kind: "NetworkNamespace"}, ObjectMeta: meta(namespace, name)}
	n.Status.ProvisioningPhase = v1alpha2.ProvisioningReady
	n.Spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic}
	return n
}
