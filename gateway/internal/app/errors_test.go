package app

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/events/standardwebhooks"
)

// exchange sends the bytes of a request, and returns the response.
func (s *env) exchange(text string) reply {
	s.t.Helper()
	conn := s.dial()
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte(text)); err != nil {
		s.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var body bytes.Buffer
	_, _ = body.ReadFrom(res.Body)
	return reply{res, body.Bytes()}
}

// TestEveryErrorIsAProblem has errors of every part of the server: each has an identifier and says what to do.
func TestEveryErrorIsAProblem(t *testing.T) {
	t.Parallel()
	s := start(t, "--server.maxBodyBytes=4096", "--server.maxHeaderBytes=8192")
	for name, tc := range map[string]struct {
		request string
		status  int
		detail  string
		body    string
	}{
		"Path":      {"GET /nothing HTTP/1.1", 404, "/api/v1/docs lists what is", ""},
		"Method":    {"DELETE /api/v1/clusters HTTP/1.1", 405, "use GET, HEAD", ""},
		"Unknown":   {"BREW /api/v1/clusters HTTP/1.1", 501, "use GET, HEAD, POST", ""},
		"NoMethod":  {"\x00\x01 /api/v1/clusters HTTP/1.1", 400, "send HTTP", ""},
		"Head":      {"GET /api/v1/clusters HTTP/1.1\r\nX-Large: " + strings.Repeat("x", 9000), 431, "more than 8192 bytes: send fewer, or raise server.maxHeaderBytes", ""},
		"Body":      {"POST /api/v1/preview HTTP/1.1\r\nContent-Length: 5000", 413, "more than 4096 bytes: send less, or raise server.maxBodyBytes", strings.Repeat("x", 5000)},
		"Parameter": {"GET /api/v1/infrastructure?a=1 HTTP/1.1", 400, "this path has no parameters: leave it out", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.exchange(tc.request + "\r\nHost: localhost\r\n\r\n" + tc.body)
			var p struct {
				Detail, RequestID string
				Status            int
			}
			if err := json.Unmarshal(r.body, &p); err != nil || r.Header.Get("Content-Type") != "application/problem+json" {
				t.Fatalf("no problem: %s %s %q", r.Status, r.Header.Get("Content-Type"), r.body)
			}
			if r.StatusCode != tc.status || p.Status != tc.status || !strings.Contains(p.Detail, tc.detail) {
				t.Errorf("%s: %s", r.Status, r.body)
			}
			if p.RequestID == "" || p.RequestID != r.Header.Get("X-Request-ID") {
				t.Errorf("request %q, header %q", p.RequestID, r.Header.Get("X-Request-ID"))
			}
		})
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, path := range []string{"/version", "/api/v1/version"} {
		if got := s.get(path).object(t); got["version"] != "test" || got["api"] != "v1" || got["go"] == "" {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// TestSignaturesAreRefusedWithTheirReason has a message that is too old, one that was changed, and one of a former specification.
func TestSignaturesAreRefusedWithTheirReason(t *testing.T) {
	t.Parallel()
	secret := standardwebhooks.Secret("0123456789abcdef0123456789abcdef")
	s := start(t, "--ingest.secrets=whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	body := approved("e-1", `{"uid":"u","generation":1}`)
	send := func(body string, at time.Time, signature string) reply {
		return s.do(http.MethodPost, "/api/v1/events", body, "Content-Type", structured, standardwebhooks.HeaderID, "m1",
			standardwebhooks.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10), standardwebhooks.HeaderSignature, signature)
	}
	now := time.Now()
	old := now.Add(-time.Hour)
	if r := send(body, old, secret.Sign("m1", old, []byte(body))); r.StatusCode != http.StatusUnauthorized || !strings.Contains(string(r.body), "five minutes away") {
		t.Errorf("an old signature: %s %s", r.Status, r.body)
	}
	if r := send(body+" ", now, secret.Sign("m1", now, []byte(body))); r.StatusCode != http.StatusUnauthorized || !strings.Contains(string(r.body), "does not belong to this message") {
		t.Errorf("a wrong signature: %s %s", r.Status, r.body)
	}
	former := strings.Replace(body, `"specversion":"1.0"`, `"specversion":"0.3"`, 1)
	if r := send(former, now, secret.Sign("m1", now, []byte(former))); r.StatusCode/100 != 4 || !strings.Contains(string(r.body), "1.0") {
		t.Errorf("an event of version 0.3: %s %s", r.Status, r.body)
	}
}

// TestIdleMetrics reads the metrics of a gateway without objects and requests.
func TestIdleMetrics(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.get("/health")
	count := func() (series int, text string) {
		text = string(s.get("/metrics").body)
		for l := range strings.Lines(text) {
			if !strings.HasPrefix(l, "#") {
				series++
			}
		}
		return series, text
	}
	series, text := count()
	if series >= 300 {
		t.Errorf("an idle gateway has %d series", series)
	}
	if strings.Contains(text, `duration_seconds_count{method="POST"`) || strings.Contains(text, `endpoint="/machines"`) {
		t.Error("an unused route has a histogram")
	}
	s.get("/api/v1/machines")
	if _, text = count(); !strings.Contains(text, `vitistack_operator_api_request_duration_seconds_count{method="GET",endpoint="/machines"} 1`) {
		t.Error("a route that was used has no histogram")
	}
}

// TestACutListSaysSo has a list without a limit that is longer than a page.
func TestACutListSaysSo(t *testing.T) {
	t.Parallel()
	s := start(t)
	const all = 1003
	for i := range all {
		s.api.Put(t, "machines", aMachine("team-a", fmt.Sprintf("m-%04d", i), "Running"))
	}
	eventually(t, "the machines", func() bool { return s.get("/api/v1/machines?limit=1").Header.Get("X-Total-Count") == fmt.Sprint(all) })
	r := s.get("/api/v1/machines")
	out := r.object(t)
	if out["total"] != float64(all) || out["next"] != nextOf(t, r) {
		t.Errorf("a list that is cut: total %v, next %v, link %q", out["total"], out["next"], r.Header.Get("Link"))
	}
	rest := s.get(out["next"].(string))
	if n := len(names(t, rest, "machines")); n != 3 || nextOf(t, rest) != "" || rest.object(t)["next"] != nil {
		t.Errorf("the rest has %d machines", n)
	}
}
