package httpclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/httpclient"
)

func client(t *testing.T, config httpclient.Config) *httpclient.Client {
	t.Helper()
	c, err := httpclient.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSSRF names servers to which connections are not allowed.
func TestSSRF(t *testing.T) {
	t.Parallel()
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	t.Cleanup(server.Close)
	for _, tc := range []struct{ reason, url, list, host string }{
		{"the cloud's metadata service has credentials", "http://169.254.169.254", "", "169.254.169.254"},
		{"the server is not listed", server.URL, "10.0.0.0/8,nam.example.com", "127.0.0.1"},
	} {
		_, err := client(t, httpclient.Config{URL: tc.url, Token: "t", Outbound: outbound.Parse(tc.list)}).Do(t.Context(), httpclient.Request{Method: http.MethodGet}, nil)
		var e *httpclient.Error
		want := "GET " + tc.host + ": connections to " + tc.host + " are not allowed here: name another server, or have it added to ALLOWED_ENDPOINTS"
		if !errors.As(err, &e) || e.Kind != httpclient.NotAllowed || e.Transient() || err.Error() != want || asked {
			t.Errorf("%s: asked %t, got %v", tc.reason, asked, err)
		}
	}
}

func TestDo(t *testing.T) {
	t.Parallel()
	type seen struct {
		Method, Path, Query, Accept, ContentType, Authorization, UserAgent, Body string
	}
	cases := map[string]struct {
		reason  string
		config  httpclient.Config
		request httpclient.Request
		want    seen
	}{
		"GetWithQuery": {
			reason:  "a request without a body has no content type",
			config:  httpclient.Config{UserAgent: "test"},
			request: httpclient.Request{Method: http.MethodGet, Path: "/v1/segments", Query: url.Values{"site": {"a b"}}},
			want:    seen{Method: "GET", Path: "/base/v1/segments", Query: "site=a+b", Accept: "application/json", UserAgent: "test"},
		},
		"BasicAuth": {
			reason:  "a user name takes precedence over a token",
			config:  httpclient.Config{Username: "admin", Password: "s3cret", Token: "t", UserAgent: "test"},
			request: httpclient.Request{Method: http.MethodPost, Path: "/", Body: map[string]int{"a": 1}},
			want: seen{Method: "POST", Path: "/base/", Accept: "application/json", ContentType: "application/json", UserAgent: "test",
				Authorization: "Basic YWRtaW46czNjcmV0", Body: `{"a":1}`},
		},
		"Bearer": {
			reason:  "a token is sent as bearer token",
			config:  httpclient.Config{Token: "t", UserAgent: "test"},
			request: httpclient.Request{Method: http.MethodDelete, Path: "/x"},
			want:    seen{Method: "DELETE", Path: "/base/x", Accept: "application/json", UserAgent: "test", Authorization: "Bearer t"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusAccepted)
				_ = json.NewEncoder(w).Encode(seen{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Accept"), r.Header.Get("Content-Type"),
					r.Header.Get("Authorization"), r.UserAgent(), string(body)})
			}))
			t.Cleanup(server.Close)
			tc.config.URL = server.URL + "/base/"
			var got seen
			res, err := client(t, tc.config).Do(t.Context(), tc.request, &got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: request (-want +got):\n%s", tc.reason, diff)
			}
			if res.Status != http.StatusAccepted || res.RetryAfter() != 7*time.Second {
				t.Errorf("%s: got status %d, retry after %s", tc.reason, res.Status, res.RetryAfter())
			}
		})
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		status    int
		header    http.Header
		body      string
		kind      httpclient.Kind
		transient bool
		after     time.Duration
		text      string
		detail    string
	}{
		"400": {reason: "the request is invalid", status: 400, kind: httpclient.Rejected, text: "the server answered 400 Bad Request"},
		"401": {reason: "credentials must be changed", status: 401, body: `{"result":401,"text":"Unauthorized"}`, kind: httpclient.Unauthorized, text: "the server answered 401 Unauthorized", detail: "Unauthorized"},
		"403": {reason: "rights must be changed", status: 403, body: `{"detail":"no\n  right"}`, kind: httpclient.Unauthorized, text: "the server answered 403 Forbidden", detail: "no right"},
		"404": {reason: "a missing object, or a wrong URL", status: 404, body: "<html>", kind: httpclient.NotFound, text: "the server answered 404 Not Found"},
		"408": {reason: "the server timed out while it read the request", status: 408, kind: httpclient.ServerFault, transient: true, text: "the server answered 408 Request Timeout"},
		"409": {reason: "a conflicting request was faster", status: 409, body: `{"title":"Conflict"}`, kind: httpclient.Conflict, text: "the server answered 409 Conflict", detail: "Conflict"},
		"410": {reason: "gone", status: 410, kind: httpclient.NotFound, text: "the server answered 410 Gone"},
		"422": {reason: "the server rejects a valid request", status: 422, kind: httpclient.Rejected, text: "the server answered 422 Unprocessable Entity"},
		"429": {reason: "slow down", status: 429, header: http.Header{"Retry-After": {"3"}}, kind: httpclient.Throttled, transient: true, after: 3 * time.Second, text: "the server answered 429 Too Many Requests"},
		"500": {reason: "an error of the server", status: 500, kind: httpclient.ServerFault, transient: true, text: "the server answered 500 Internal Server Error"},
		"503": {reason: "not now", status: 503, header: http.Header{"Retry-After": {"nonsense"}}, kind: httpclient.ServerFault, transient: true, text: "the server answered 503 Service Unavailable"},
		"302": {reason: "credentials are not sent to another server", status: 302, header: http.Header{"Location": {"/elsewhere"}}, kind: httpclient.Redirected, text: "the server answered 302 Found"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range tc.header {
					w.Header()[k] = v
				}
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			}))
			t.Cleanup(server.Close)
			_, err := client(t, httpclient.Config{URL: server.URL}).Do(t.Context(), httpclient.Request{Method: http.MethodGet, Path: "/a?token=secret"}, nil)
			var e *httpclient.Error
			if !errors.As(err, &e) {
				t.Fatalf("%s: got %v, want a httpclient.Error", tc.reason, err)
			}
			if e.Kind != tc.kind || e.Transient() != tc.transient || e.Status != tc.status || e.RetryAfter != tc.after || e.Detail() != tc.detail {
				t.Errorf("%s: got %s, transient %t, status %d, after %s, detail %q", tc.reason, e.Kind, e.Transient(), e.Status, e.RetryAfter, e.Detail())
			}
			if want := "GET 127.0.0.1/a: " + tc.text; err.Error() != want {
				t.Errorf("%s: got text %q, want %q", tc.reason, err, want)
			}
		})
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		body   string
		max    int64
		want   []int
		text   string
	}{
		"List":      {reason: "the answer is decoded", body: "[1,2]", want: []int{1, 2}},
		"Empty":     {reason: "an empty answer keeps the value", body: " \n"},
		"HTML":      {reason: "a web server answers at this URL", body: "<html>", text: "the answer is not JSON"},
		"Cut":       {reason: "an incomplete answer is invalid", body: "[1,", text: "the answer is not JSON"},
		"OtherType": {reason: "another API answers at this URL", body: `{"a":1}`, text: "the answer has a JSON object where another type belongs"},
		"TooLarge":  {reason: "memory is bounded", body: "[1,2,3,4,5,6,7,8]", max: 8, text: "the answer is larger than 8 bytes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tc.body) }))
			t.Cleanup(server.Close)
			var got []int
			_, err := client(t, httpclient.Config{URL: server.URL, MaxBody: tc.max}).Do(t.Context(), httpclient.Request{Method: http.MethodGet}, &got)
			if tc.text == "" {
				if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
					t.Errorf("%s: got %v, error %v", tc.reason, got, err)
				}
				return
			}
			var e *httpclient.Error
			if !errors.As(err, &e) || e.Kind != httpclient.Malformed || e.Transient() || err.Error() != "GET 127.0.0.1: "+tc.text {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		serve  func(net.Conn)
		kind   httpclient.Kind
		text   string
	}{
		"Refused":   {reason: "the port is closed", kind: httpclient.Unreachable, text: "connection refused"},
		"Closed":    {reason: "the server closes the connection", serve: func(c net.Conn) { read(c) }, kind: httpclient.Unreachable, text: "the server closed the connection before it had answered"},
		"Truncated": {reason: "the server dies while it answers", serve: func(c net.Conn) { read(c); write(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1") }, kind: httpclient.Unreachable, text: "the server closed the connection before it had answered"},
		"Silent":    {reason: "the server hangs", serve: func(c net.Conn) { read(c); read(c) }, kind: httpclient.Timeout, text: "the request timed out"},
		"Slow":      {reason: "the body hangs", serve: func(c net.Conn) { read(c); write(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1"); read(c) }, kind: httpclient.Timeout, text: "the request timed out"},
		"NotHTTP":   {reason: "a server of another protocol", serve: func(c net.Conn) { read(c); write(c, "220 mail ready\r\n") }, kind: httpclient.Unreachable, text: "the connection failed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := client(t, httpclient.Config{URL: "http://" + listen(t, tc.serve), Timeout: 300 * time.Millisecond})
			_, err := c.Do(t.Context(), httpclient.Request{Method: http.MethodPost, Body: 1}, new(any))
			var e *httpclient.Error
			if !errors.As(err, &e) || e.Kind != tc.kind || !e.Transient() {
				t.Fatalf("%s: got %#v", tc.reason, err)
			}
			if want := "POST 127.0.0.1: " + tc.text; err.Error() != want {
				t.Errorf("%s: got text %q, want %q", tc.reason, err, want)
			}
		})
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := client(t, httpclient.Config{URL: "http://" + listen(t, func(c net.Conn) { read(c); cancel(); read(c) })})
	_, err := c.Do(ctx, httpclient.Request{Method: http.MethodGet}, nil)
	var e *httpclient.Error
	if !errors.As(err, &e) || e.Kind != httpclient.Timeout || !errors.Is(err, context.Canceled) {
		t.Errorf("the end of a delivery cancels its requests, got %v", err)
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		config httpclient.Config
		want   string
	}{
		"NoScheme":    {reason: "the scheme decides whether to use TLS", config: httpclient.Config{URL: "example.com:8000"}, want: "write scheme and host"},
		"NoHost":      {reason: "a URL needs a host", config: httpclient.Config{URL: "http://"}, want: "write scheme and host"},
		"OtherScheme": {reason: "only HTTP is supported", config: httpclient.Config{URL: "unix:///run/kea"}, want: "write scheme and host"},
		"Credentials": {reason: "a URL is visible in statuses", config: httpclient.Config{URL: "https://user:hunter2@example.com"}, want: "a URL must not contain credentials"},
		"CA":          {reason: "the file contains no certificate", config: httpclient.Config{URL: "https://example.com", TLS: httpclient.TLS{CA: []byte("x")}}, want: "the authority has no certificate in it"},
		"KeyMissing":  {reason: "a certificate requires its key", config: httpclient.Config{URL: "https://example.com", TLS: httpclient.TLS{Cert: []byte("x")}}, want: "do not match, or one is missing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := httpclient.New(tc.config)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q in it", tc.reason, err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
}

// listen starts a listener on a free port, which serves one connection after another, or none if serve
// is nil.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if serve == nil {
		_ = l.Close()
		return address
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	return address
}

func read(c net.Conn) { _, _ = c.Read(make([]byte, 4096)) }

func write(c net.Conn, s string) { _, _ = io.WriteString(c, s) }

// quiet returns a logger that discards what a server logs about rejected clients.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
