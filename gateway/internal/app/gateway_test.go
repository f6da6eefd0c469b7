package app

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/fakeapi"
)

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
	for _, path := range []string{"/api/v1/clusters", "/api/v1/clusters/uid-a", "/api/v1/resources/uid-a"} {
		first := s.get(path, "Accept-Encoding", "zstd").Header.Get("ETag")
		again := s.get(path, "Accept-Encoding", "zstd", "If-None-Match", first)
		if again.StatusCode != http.StatusNotModified || again.Header.Get("ETag") != first {
			t.Errorf("%s is %s, and the same again, %s, is %s", path, first, again.Status, again.Header.Get("ETag"))
		}
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
			if strings.Contains(l, "find-me") && strings.Contains(l, "statusCode") {
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
