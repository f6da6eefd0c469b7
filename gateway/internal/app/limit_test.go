package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRateLimit(t *testing.T) {
	t.Parallel()
	s := start(t, "--rateLimit.enabled=true", "--rateLimit.requestsPerMinute=6", "--rateLimit.burstSize=3", "--server.trustedProxies=127.0.0.0/8")
	var codes []int
	var last reply
	for range 5 {
		last = s.get("/api/v1/clusters", "X-Forwarded-For", "203.0.113.7")
		codes = append(codes, last.StatusCode)
	}
	if diff := cmp.Diff([]int{200, 200, 200, 429, 429}, codes); diff != "" {
		t.Errorf("five at once (-want +got):\n%s", diff)
	}
	for header, want := range map[string]string{"RateLimit-Policy": `"default";q=6;w=60`, "X-RateLimit-Limit": "3", "X-RateLimit-Remaining": "0"} {
		if got := last.Header.Get(header); got != want {
			t.Errorf("%s is %q, want %q", header, got, want)
		}
	}
	if !strings.HasPrefix(last.Header.Get("RateLimit"), `"default";r=0;t=`) || last.Header.Get("Retry-After") == "" {
		t.Errorf("RateLimit %q, Retry-After %q", last.Header.Get("RateLimit"), last.Header.Get("Retry-After"))
	}
	if r := s.get("/api/v1/session", "X-Forwarded-For", "203.0.113.7"); r.StatusCode != 200 {
		t.Errorf("the same caller's page, which connects: %s", r.Status)
	}
	if r := s.get("/api/v1/clusters", "X-Forwarded-For", "203.0.113.8"); r.StatusCode != 200 {
		t.Errorf("another caller: %s", r.Status)
	}
	if r := s.get("/api/v1/clusters", "X-Forwarded-For", "198.51.100.1, 203.0.113.7"); r.StatusCode != 429 {
		t.Errorf("a caller who invents a hop before the proxy: %s", r.Status)
	}
	for range 10 {
		if r := s.get("/health", "X-Forwarded-For", "203.0.113.7"); r.StatusCode != 200 {
			t.Fatalf("health is limited: %s", r.Status)
		}
	}
}

// forwarded sends a request as a proxy does that passes on these lines of X-Forwarded-For. The caller closes the response.
func (s *env) forwarded(path string, lines ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header["X-Forwarded-For"] = lines
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// TestCallersAreCountedByTheirOwnAddress has callers who would get more by the addresses that they invent, or by the many that an IPv6
// host has.
func TestCallersAreCountedByTheirOwnAddress(t *testing.T) {
	t.Parallel()
	s := start(t, "--rateLimit.enabled=true", "--rateLimit.requestsPerMinute=1", "--rateLimit.burstSize=1", "--server.trustedProxies=127.0.0.0/8")
	for _, tc := range []struct {
		reason string
		lines  []string
		want   int
	}{
		{"the first request", []string{"203.0.113.7"}, http.StatusOK},
		{"the proxy adds a line below the one that the caller invents", []string{"198.51.100.1", "203.0.113.7"}, http.StatusTooManyRequests},
		{"the lines together are one list", []string{"198.51.100.1", "203.0.113.9, 127.0.0.2"}, http.StatusOK},
		{"the first request by IPv6", []string{"2001:db8::1"}, http.StatusOK},
		{"the same host has all addresses of its /64", []string{"2001:db8::ffff:2"}, http.StatusTooManyRequests},
		{"another /64", []string{"2001:db8:0:1::1"}, http.StatusOK},
		{"the proxy writes the port of the client", []string{"203.0.113.11:51000"}, http.StatusOK},
		{"another client of this proxy", []string{"203.0.113.12:51000"}, http.StatusOK},
		{"the same client from another port", []string{"203.0.113.12:51001"}, http.StatusTooManyRequests},
		{"an IPv6 client of this proxy", []string{"[2001:db8:0:2::1]:51000"}, http.StatusOK},
	} {
		if res := s.forwarded("/api/v1/clusters", tc.lines...); res.StatusCode != tc.want {
			t.Errorf("%s: %s, want %d", tc.reason, res.Status, tc.want)
		}
	}
}

// TestStreamsAreCountedBySite opens streams from addresses of one IPv6 host, which could otherwise take the streams of all.
func TestStreamsAreCountedBySite(t *testing.T) {
	t.Parallel()
	s := start(t, "--server.trustedProxies=127.0.0.0/8", "--stream.maxClientsPerAddress=2")
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if res := s.forwarded("/api/v1/stream", fmt.Sprintf("2001:db8::%d", i+1)); res.StatusCode != want {
			t.Errorf("stream %d: %s, want %d", i+1, res.Status, want)
		}
	}
	if res := s.forwarded("/api/v1/stream", "2001:db8:0:1::1"); res.StatusCode != http.StatusOK {
		t.Errorf("a stream of another site: %s", res.Status)
	}
}

// TestRoughClients have requests that are too large, never end, or are none. The
// gateway has to serve others meanwhile.
func TestRoughClients(t *testing.T) {
	t.Parallel()
	s := start(t, "--server.maxBodyBytes=4096", "--server.maxHeaderBytes=8192", "--server.readTimeout=2s")
	address := strings.TrimPrefix(s.url, "http://")
	for range 200 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = conn.Write([]byte("GET /api/v1/clusters HTTP/1.1\r\nHost: x\r\nX-Slow: "))
	}
	if r := s.get("/api/v1/clusters"); r.StatusCode != 200 {
		t.Errorf("while others are slow: %s", r.Status)
	}
	if r := s.do(http.MethodPost, "/api/v1/preview", strings.Repeat("x", 5000)); r.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body that is too large: %s %s", r.Status, r.body)
	}
	for name, tc := range map[string]struct{ request, want string }{
		"a head that is too large": {"GET /api/v1/clusters HTTP/1.1\r\nHost: x\r\nX-Large: " + strings.Repeat("x", 1<<16) + "\r\n\r\n", "HTTP/1.1 431"},
		"nonsense":                 {"\x00\x01\x02 nonsense\r\n\r\n" + strings.Repeat("x", 1<<16), "HTTP/1.1 400"},
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write([]byte(tc.request))
		_ = conn.SetReadDeadline(time.Now().Add(3 * time.Minute))
		// A reset connection loses the answer of a client that is still writing.
		if answer, err := io.ReadAll(conn); err != nil || !bytes.Contains(answer, []byte(tc.want)) {
			t.Errorf("%s is answered with %q, %v", name, answer, err)
		}
	}
	slow, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	_, _ = slow.Write([]byte("POST /api/v1/preview HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{"))
	_ = slow.SetReadDeadline(time.Now().Add(3 * time.Minute))
	if _, err := io.ReadAll(slow); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a body that does not come is waited for")
	}
	if r := s.get("/api/v1/clusters"); r.StatusCode != 200 {
		t.Errorf("after all that: %s %s", r.Status, r.body)
	}
}

// TestFlood sends many requests at once. The gateway refuses most of them.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := start(t, "--rateLimit.enabled=true", "--server.trustedProxies=127.0.0.1")
	begun := time.Now()
	codes := make(chan int, 400)
	for range 8 {
		go func() {
			for range 50 {
				req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/clusters", nil)
				req.Header.Set("X-Forwarded-For", "203.0.113.1")
				res, err := http.DefaultTransport.RoundTrip(req)
				if err != nil {
					codes <- 0
					continue
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				codes <- res.StatusCode
			}
		}()
	}
	count := map[int]int{}
	for range 400 {
		count[<-codes]++
	}
	// Ten at once, and one for each second since the first.
	if most := 11 + int(time.Since(begun).Seconds()); count[200] < 10 || count[200] > most || count[200]+count[429] != 400 {
		t.Errorf("answers to 400 requests: %v, want at most %d of 200", count, most)
	}
	if r := s.get("/api/v1/clusters", "X-Forwarded-For", "203.0.113.2"); r.StatusCode != 200 {
		t.Errorf("another client: %s", r.Status)
	}
}
