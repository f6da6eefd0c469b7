package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/config"
	"github.com/vitistack/stack/gateway/fakeapi"
)

// stand is a gateway with a fake API server.
type stand struct {
	t    *testing.T
	api  *fakeapi.Server
	url  string
	log  *lockedBuffer
	stop func() error
	// gateway is the parts, for tests that look inside.
	gateway *gateway
}

var plurals = []string{
	"networknamespaces", "networkconfigurations", "ipallocations", "machines", "machineproviders", "kubernetesclusters", "nodes",
}

// start runs a gateway with these settings until t ends.
func start(t *testing.T, settings ...string) *stand {
	t.Helper()
	s := startCold(t, func(*fakeapi.Server) {}, settings...)
	s.waitReady()
	eventually(t, "the database", func() bool { return s.get("/health/database").StatusCode == http.StatusOK })
	return s
}

// startCold is start without waiting until the gateway is ready. It prepares the
// API server before the gateway starts.
func startCold(t *testing.T, prepare func(*fakeapi.Server), settings ...string) *stand {
	t.Helper()
	s := &stand{t: t, api: fakeapi.Start(t), log: &lockedBuffer{}}
	s.api.Serve(plurals...)
	prepare(s.api)
	settings = append([]string{"--rateLimit.enabled=false", "--state.dir=" + t.TempDir()}, settings...)
	c, err := config.Load(settings, func(string) (string, bool) { return "", false }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var log *slog.Logger = events.NewLogger(s.log, "debug")
	parts := make(chan *gateway, 1)
	go func() {
		done <- serve(ctx, c, s.api.Config(), listener, nil, log, func(g *gateway) { parts <- g })
	}()
	select {
	case s.gateway = <-parts:
	case err := <-done:
		t.Fatal(err)
	}
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

func (s *stand) waitReady() {
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
	deadline := time.After(30 * time.Second)
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
func (s *stand) do(method, path, body string, headers ...string) reply {
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

func (s *stand) get(path string, headers ...string) reply {
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

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
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

func TestClusters(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.api.Put(t, "kubernetesclusters", aCluster("team-a", "shop", "Running"))
	eventually(t, "the cluster", func() bool { return s.get("/api/v1/clusters").Header.Get("X-Total-Count") == "1" })
	r := s.get("/api/v1/clusters", "Origin", "https://elsewhere.example")
	want := map[string]any{"clusters": []any{map[string]any{
		"id": "uid-shop", "name": "shop", "namespace": "team-a", "status": "active",
		"nodes":       map[string]any{"total": 1.0, "ready": 0.0},
		"operators":   map[string]any{"proxmox": false, "talos": true, "kea": false, "kubeVirt": false},
		"lastUpdated": "2026-01-02T03:04:05Z",
	}}}
	if diff := cmp.Diff(want, r.object(t)); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	tag := r.Header.Get("ETag")
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-cache", "Vary": "Accept-Encoding",
		"X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": "*",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if again := s.get("/api/v1/clusters", "If-None-Match", tag); again.StatusCode != http.StatusNotModified || len(again.body) > 0 || again.Header.Get("ETag") != tag {
		t.Errorf("the same again: %s with %d bytes and ETag %s", again.Status, len(again.body), again.Header.Get("ETag"))
	}
	s.api.Put(t, "kubernetesclusters", aCluster("team-a", "shop", "Failed"))
	eventually(t, "the change", func() bool { return s.get("/api/v1/clusters", "If-None-Match", tag).StatusCode == http.StatusOK })
}

func TestCompression(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		s.api.Put(t, "kubernetesclusters", aCluster("team-a", name, "Running"))
	}
	eventually(t, "the clusters", func() bool { return s.get("/api/v1/clusters").Header.Get("X-Total-Count") == "8" })
	whole := s.get("/api/v1/clusters")
	packed := s.get("/api/v1/clusters", "Accept-Encoding", "gzip, br")
	if packed.Header.Get("Content-Encoding") != "gzip" || len(packed.body) >= len(whole.body) {
		t.Fatalf("gzip: %s of %d bytes for %d", packed.Header.Get("Content-Encoding"), len(packed.body), len(whole.body))
	}
	unpack, err := gzip.NewReader(bytes.NewReader(packed.body))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(unpack); err != nil || !bytes.Equal(got, whole.body) {
		t.Errorf("the gzip body is another one: %v", err)
	}
	if s.get("/api/v1/clusters", "Accept-Encoding", "gzip", "If-None-Match", packed.Header.Get("ETag")).StatusCode != http.StatusNotModified {
		t.Error("the gzip body's own tag does not match")
	}
	if packed.Header.Get("ETag") == whole.Header.Get("ETag") {
		t.Error("two codings have one strong tag")
	}
	for header, want := range map[string]string{"zstd, gzip": "zstd", "gzip;q=0": "", "gzip;q=0.5, zstd;q=0.1": "gzip", "*": "gzip", "": "", "deflate": ""} {
		if got := s.get("/api/v1/clusters", "Accept-Encoding", header).Header.Get("Content-Encoding"); got != want {
			t.Errorf("Accept-Encoding %q gives %q, want %q", header, got, want)
		}
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"/health", "/health/live", "/health/operators", "/health/database", "/health/cache", "/ready"} {
		for _, prefix := range []string{"", "/api/v1"} {
			if r := s.get(prefix + path); r.StatusCode != http.StatusOK {
				t.Errorf("%s%s: %s %s", prefix, path, r.Status, r.body)
			}
		}
	}
	body := s.get("/health").object(t)
	delete(body, "timestamp")
	want := map[string]any{"status": "healthy", "checks": map[string]any{"database": "healthy", "cache": "healthy", "operators": map[string]any{}}}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("health (-want +got):\n%s", diff)
	}
	p := &v1alpha1.MachineProvider{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "MachineProvider"}, ObjectMeta: meta("", "pve")}
	p.Spec.Type, p.Status.Phase = v1alpha1.ProviderProxmox, v1alpha1.ProviderOffline
	s.api.Put(t, "machineproviders", p)
	eventually(t, "the operator's failure", func() bool { return s.get("/health/operators").StatusCode == http.StatusServiceUnavailable })
	if r := s.get("/health"); r.StatusCode != http.StatusServiceUnavailable || r.object(t)["status"] != "unhealthy" {
		t.Errorf("with its only operator down, health is %s %s", r.Status, r.body)
	}
}

func TestNotReadyUntilRead(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { api.FailResource("machines", http.StatusServiceUnavailable) })
	eventually(t, "all but the machines", func() bool {
		waiting, _ := s.get("/ready").object(t)["waiting"].([]any)
		return len(waiting) == 1 && waiting[0] == "Machine"
	})
	for path, want := range map[string]int{"/ready": 503, "/health": 503, "/health/live": 200, "/api/v1/clusters": 503, "/api/v1/stream": 503} {
		if r := s.get(path); r.StatusCode != want {
			t.Errorf("%s answers %s before the machines are read", path, r.Status)
		}
	}
	s.api.FailResource("machines", 0)
	s.waitReady()
}

func TestProblems(t *testing.T) {
	t.Parallel()
	s := start(t)
	cases := map[string]struct {
		reason, method, path string
		status               int
		says                 string
	}{
		"Unknown":  {reason: "a path that nothing serves", method: "GET", path: "/api/v1/nothing", status: 404, says: "/api/v1/docs"},
		"Method":   {reason: "a method that is not served", method: "DELETE", path: "/api/v1/clusters", status: 405, says: "use GET"},
		"Topic":    {reason: "a topic that does not exist", method: "GET", path: "/api/v1/stream?topics=x", status: 400, says: "write summary, events, networks"},
		"Status":   {reason: "a status that no machine has", method: "GET", path: "/api/v1/machines?status=failed,broken", status: 400, says: "there is no status broken: write pending, running, failed, unknown"},
		"Model":    {reason: "clusters have another model", method: "GET", path: "/api/v1/clusters?status=running", status: 400, says: "write active, inactive, failed"},
		"Resource": {reason: "a type that no resource has", method: "GET", path: "/api/v1/resources?type=clusters", status: 400, says: "write cluster, machine, network, storage"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := s.do(tc.method, tc.path, "", "X-Request-ID", "my-id")
			p := r.object(t)
			if detail, _ := p["detail"].(string); r.StatusCode != tc.status || r.Header.Get("Content-Type") != "application/problem+json" || p["status"] != float64(tc.status) || p["requestId"] != "my-id" || !strings.Contains(detail, tc.says) {
				t.Errorf("%s: %s %s", tc.reason, r.Status, r.body)
			}
			if r.Header.Get("X-Request-ID") != "my-id" {
				t.Errorf("the request's id is %q", r.Header.Get("X-Request-ID"))
			}
		})
	}
	if id := s.get("/ready", "X-Request-ID", "bad id\t").Header.Get("X-Request-ID"); !strings.HasPrefix(id, "req-") {
		t.Errorf("an unusable id became %q", id)
	}
}

func TestStreamOverHTTP(t *testing.T) {
	t.Parallel()
	s := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/events/stream?topics=machines", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "https://elsewhere.example")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.Header.Get("Content-Type") != "text/event-stream" || res.Header.Get("X-Request-ID") == "" || res.Header.Get("Access-Control-Allow-Origin") != "*" {
		t.Errorf("head: %v", res.Header)
	}
	lines := bufio.NewScanner(res.Body)
	read := func(part string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), part) {
				return
			}
		}
		t.Fatalf("the stream ended before %q: %v", part, lines.Err())
	}
	read("event: synced")
	s.api.Put(t, "machines", aMachine("team-a", "m1", "Running"))
	read(`"name":"m1"`)
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	read("event: shutdown")
}

func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.get("/api/v1/infrastructure", "X-Request-ID", "find-me", "User-Agent", "kubectl/v1.28.0")
	var line map[string]any
	eventually(t, "the line", func() bool {
		for l := range strings.Lines(s.log.String()) {
			if strings.Contains(l, "find-me") {
				return json.Unmarshal([]byte(l), &line) == nil
			}
		}
		return false
	})
	if _, err := time.ParseDuration(line["duration"].(string)); err != nil {
		t.Errorf("duration: %v", err)
	}
	if _, err := time.Parse(time.RFC3339, line["timestamp"].(string)); err != nil {
		t.Errorf("timestamp: %v", err)
	}
	delete(line, "duration")
	delete(line, "timestamp")
	want := map[string]any{
		"level": "info", "component": "httpserver", "requestId": "find-me", "method": "GET", "path": "/api/v1/infrastructure",
		"statusCode": 200.0, "userAgent": "kubectl/v1.28.0", "message": "Request completed successfully",
	}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("access log (-want +got):\n%s", diff)
	}
	if strings.Contains(s.log.String(), `"path":"/ready"`) {
		t.Error("an excluded path is logged")
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.get("/")
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") || !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'self'") {
		t.Errorf("head of the page: %v", r.Header)
	}
	for path, kind := range map[string]string{
		"/page/main.js": "text/javascript", "/page/base.css": "text/css", "/page/icon.svg": "image/svg+xml",
	} {
		if !strings.Contains(string(r.body), `"`+path+`"`) {
			t.Errorf("the page lacks %s", path)
		}
		if r := s.get(path); r.StatusCode != 200 || !strings.HasPrefix(r.Header.Get("Content-Type"), kind) {
			t.Errorf("%s: %s %s", path, r.Status, r.Header.Get("Content-Type"))
		}
	}
	if r := s.get("/page/page.go"); r.StatusCode != http.StatusNotFound {
		t.Errorf("a file that is no part of the page: %s", r.Status)
	}
}
