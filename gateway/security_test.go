package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/gateway/config"
	"github.com/vitistack/stack/gateway/fakeapi"
)

// keyLine makes a key, and the line that configures it.
func keyLine(t *testing.T, name, granted string) (key, line string) {
	t.Helper()
	var out bytes.Buffer
	if err := hashKey([]string{name, granted}, strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(out.String()) {
		_, value, _ := strings.Cut(strings.TrimSpace(l), ": ")
		if strings.HasPrefix(l, "key") {
			key = value
		} else {
			line = value
		}
	}
	return key, line
}

func TestKeys(t *testing.T) {
	t.Parallel()
	reader, readLine := keyLine(t, "reader", "read")
	sender, sendLine := keyLine(t, "sender", "events")
	s := start(t, "--auth.enabled=true", "--auth.keys="+readLine+","+sendLine)
	cases := map[string]struct {
		reason, method, path, key string
		want                      int
	}{
		"None":      {reason: "no key", path: "/api/v1/clusters", want: 401},
		"Wrong":     {reason: "a key that nobody has", path: "/api/v1/clusters", key: reader + "x", want: 401},
		"Right":     {reason: "a key that may read", path: "/api/v1/clusters", key: reader, want: 200},
		"Scope":     {reason: "a key that may only send events", path: "/api/v1/clusters", key: sender, want: 403},
		"Stream":    {reason: "the stream is for readers", path: "/api/v1/stream", want: 401},
		"Preview":   {reason: "so is the preview", method: "POST", path: "/api/v1/preview", want: 401},
		"Ingest":    {reason: "a reader may not send events", method: "POST", path: "/api/v1/events", key: reader, want: 403},
		"Health":    {reason: "health is open", path: "/health", want: 200},
		"Page":      {reason: "the page's files are open", path: "/", want: 200},
		"Docs":      {reason: "so is the description", path: "/api/v1/openapi.json", want: 200},
		"Metrics":   {reason: "so are metrics, unless configured", path: "/metrics", want: 200},
		"Broker":    {reason: "the Broker has no key", method: "POST", path: "/events", want: 415},
		"NotFound":  {reason: "what is not there needs no key", path: "/api/v1/none", want: 404},
		"InAddress": {reason: "a key in the address is no key", path: "/api/v1/clusters?key=" + reader, want: 401},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var headers []string
			if tc.key != "" {
				headers = []string{"Authorization", "bearer " + tc.key}
			}
			method := tc.method
			if method == "" {
				method = "GET"
			}
			r := s.do(method, tc.path, "", headers...)
			if r.StatusCode != tc.want {
				t.Errorf("%s: %s %s", tc.reason, r.Status, r.body)
			}
			if tc.want == 401 && r.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no challenge", tc.reason)
			}
		})
	}
	if strings.Contains(s.log.String(), reader) {
		t.Error("the log holds a key")
	}
}

func TestKeysAreReadAgain(t *testing.T) {
	t.Parallel()
	old, oldLine := keyLine(t, "old", "read")
	young, youngLine := keyLine(t, "young", "read")
	path := filepath.Join(t.TempDir(), "keys")
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# keys\n" + oldLine + "\n")
	s := start(t, "--auth.enabled=true", "--auth.keysFile="+path)
	status := func(key string) int { return s.get("/api/v1/clusters", "Authorization", "Bearer "+key).StatusCode }
	if status(old) != 200 || status(young) != 401 {
		t.Fatalf("before: %d and %d", status(old), status(young))
	}
	write(youngLine + "\n")
	eventually(t, "the new key", func() bool { return status(old) == 401 && status(young) == 200 })
	write("nonsense here\n")
	eventually(t, "the refusal", func() bool { return strings.Contains(s.log.String(), "Cannot use the changed file") })
	if status(young) != 200 {
		t.Error("a file with a mistake took the keys away")
	}
}

func TestSession(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "me", "read")
	s := start(t, "--auth.enabled=true", "--auth.keys="+line)
	if got := s.get("/api/v1/session").object(t); got["required"] != true || got["name"] != nil {
		t.Errorf("before: %v", got)
	}
	if r := s.do(http.MethodPost, "/api/v1/session", `{"key":"wrong"}`); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a wrong key: %s", r.Status)
	}
	r := s.do(http.MethodPost, "/api/v1/session", `{"key":"`+key+`"}`)
	cookie := r.Header.Get("Set-Cookie")
	for _, part := range []string{"HttpOnly", "SameSite=Strict", "path=/"} {
		if !strings.Contains(cookie, part) {
			t.Errorf("the cookie lacks %s: %s", part, cookie)
		}
	}
	cookie, _, _ = strings.Cut(cookie, ";")
	if got := s.get("/api/v1/session", "Cookie", cookie).object(t); got["name"] != "key/me" {
		t.Errorf("after: %v", got)
	}
	if r := s.get("/api/v1/clusters", "Cookie", cookie); r.StatusCode != 200 {
		t.Errorf("with the cookie: %s", r.Status)
	}
	if r := s.do(http.MethodPost, "/api/v1/preview", "{", "Cookie", cookie, "Origin", "https://elsewhere.example", "Sec-Fetch-Site", "cross-site"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("another site uses the cookie: %s", r.Status)
	}
	if r := s.do(http.MethodPost, "/api/v1/preview", "{", "Cookie", cookie, "Origin", s.url); r.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("the page itself: %s", r.Status)
	}
	if out := s.do(http.MethodDelete, "/api/v1/session", "").Header.Get("Set-Cookie"); !strings.Contains(out, cookieName+"=;") {
		t.Errorf("log out: %s", out)
	}
}

func TestKubernetesTokens(t *testing.T) {
	t.Parallel()
	var reviews fakeReviews
	s := startCold(t, func(api *fakeapi.Server) {
		api.Answer("tokenreviews", reviews.token)
		api.Answer("subjectaccessreviews", reviews.access)
	}, "--auth.enabled=true", "--auth.tokenReview=true")
	s.waitReady()
	status := func(token string) int { return s.get("/api/v1/clusters", "Authorization", "Bearer "+token).StatusCode }
	if got := status("kari"); got != 200 {
		t.Errorf("a user who may read: %d", got)
	}
	if got := status("ola"); got != 403 {
		t.Errorf("a user without a role: %d", got)
	}
	if got := status("nobody"); got != 401 {
		t.Errorf("a token that is nobody's: %d", got)
	}
	before := s.api.Requests("tokenreviews")
	for range 5 {
		status("kari")
		status("nobody")
	}
	if s.api.Requests("tokenreviews") != before {
		t.Error("the API server is asked for each request")
	}
	s.api.FailResource("tokenreviews", 503)
	if got := status("somebody-new"); got != 503 {
		t.Errorf("while the API server fails: %d", got)
	}
}

// fakeReviews knows kari, who may read, and ola, who may nothing.
type fakeReviews struct{}

func (fakeReviews) token(body []byte) any {
	var in struct {
		Spec struct{ Token string }
	}
	_ = json.Unmarshal(body, &in)
	status := map[string]any{"authenticated": in.Spec.Token == "kari" || in.Spec.Token == "ola", "user": map[string]any{"username": in.Spec.Token}}
	return map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}
}

func (fakeReviews) access(body []byte) any {
	var in struct {
		Spec struct {
			User                  string
			NonResourceAttributes struct{ Verb, Path string }
		}
	}
	_ = json.Unmarshal(body, &in)
	allowed := in.Spec.User == "kari" && in.Spec.NonResourceAttributes.Verb == "get"
	return map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": map[string]any{"allowed": allowed}}
}

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

func TestLimiter(t *testing.T) {
	t.Parallel()
	l := newLimiter(config.RateLimit{Enabled: true, RequestsPerMinute: 60, BurstSize: 10, KeyGenerator: "ip"})
	now := time.Unix(0, 0)
	for i := range 10 {
		if left, _, ok := l.take("a", now); !ok || left != 9-i {
			t.Fatalf("token %d: %d left, %v", i, left, ok)
		}
	}
	if _, next, ok := l.take("a", now); ok || next != time.Second {
		t.Errorf("the eleventh: %v, next in %s", ok, next)
	}
	if _, _, ok := l.take("a", now.Add(time.Second)); !ok {
		t.Error("a second later there is no token")
	}
	if _, _, ok := l.take("a", now.Add(time.Second)); ok {
		t.Error("a second later there are two")
	}
	if left, _, _ := l.take("a", now.Add(time.Hour)); left != 9 {
		t.Errorf("an hour later %d are left", left)
	}
	for i := range 200_000 {
		l.take(fmt.Sprint(i), now)
	}
	known := 0
	for i := range l.shards {
		known += len(l.shards[i].full)
	}
	if known > len(l.shards)*mostCallers {
		t.Errorf("%d callers are known", known)
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	s := start(t, "--cors.allowedOrigins=https://ok.example")
	r := s.do(http.MethodOptions, "/api/v1/clusters", "", "Origin", "https://ok.example", "Access-Control-Request-Method", "GET")
	want := map[string]string{
		"Access-Control-Allow-Origin": "https://ok.example", "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
		"Access-Control-Allow-Headers": "Content-Type, Authorization, If-None-Match, Last-Event-ID, X-Request-ID", "Access-Control-Max-Age": "86400",
	}
	for name, value := range want {
		if got := r.Header.Get(name); r.StatusCode != http.StatusNoContent || got != value {
			t.Errorf("%s: %s is %q, want %q", r.Status, name, got, value)
		}
	}
	r = s.do(http.MethodOptions, "/api/v1/clusters", "", "Origin", "https://bad.example", "Access-Control-Request-Method", "GET")
	if r.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("an origin that is not allowed is allowed")
	}
	if got := s.get("/api/v1/clusters", "Origin", "https://ok.example").Header.Get("Access-Control-Expose-Headers"); !strings.Contains(got, "X-Total-Count") {
		t.Errorf("exposed headers: %s", got)
	}
}

// authority issues certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key = a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.crt", "CERTIFICATE", der)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes name.crt and name.key.
func (a *authority) issue(name string, serial int64) {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".key", "PRIVATE KEY", private)
	a.write(name+".crt", "CERTIFICATE", der)
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// client trusts the authority, and has a certificate of that name unless it is
// empty.
func (a *authority) client(name string, change ...func(*tls.Config)) *http.Client {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.path(name+".crt"), a.path(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	for _, f := range change {
		f(c)
	}
	transport := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// ask returns the status code, and the serial number of the server's certificate;
// 0 where there is no answer.
func ask(c *http.Client, url string) (int, int64) {
	res, err := c.Get(url)
	if err != nil {
		return 0, 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode, res.TLS.PeerCertificates[0].SerialNumber.Int64()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", 10)
	a.issue("kari", 20)
	s := startCold(t, func(*fakeapi.Server) {}, "--tls.enabled=true", "--tls.certFile="+a.path("server.crt"), "--tls.keyFile="+a.path("server.key"),
		"--tls.caFile="+a.path("ca.crt"), "--tls.minVersion=1.3", "--auth.enabled=true")
	s.url = strings.Replace(s.url, "http:", "https:", 1)
	plain, kari := a.client(""), a.client("kari")
	eventually(t, "the gateway to be ready", func() bool { code, _ := ask(plain, s.url+"/ready"); return code == 200 })
	if code, _ := ask(plain, s.url+"/api/v1/clusters"); code != 401 {
		t.Errorf("without a certificate: %d", code)
	}
	if code, _ := ask(kari, s.url+"/api/v1/clusters"); code != 200 {
		t.Errorf("with a certificate: %d", code)
	}
	if code, _ := ask(a.client("", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), s.url+"/ready"); code != 0 {
		t.Errorf("with TLS 1.2: %d", code)
	}
	stranger := newAuthority(t)
	stranger.issue("eve", 30)
	eve, err := tls.LoadX509KeyPair(stranger.path("eve.crt"), stranger.path("eve.key"))
	if err != nil {
		t.Fatal(err)
	}
	force := func(c *tls.Config) {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &eve, nil }
	}
	if code, _ := ask(a.client("", force), s.url+"/api/v1/clusters"); code != 0 {
		t.Errorf("with a stranger's certificate: %d", code)
	}
	a.issue("server", 11)
	eventually(t, "the new certificate", func() bool { _, serial := ask(plain, s.url+"/ready"); return serial == 11 })

	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte("\x16\x03\x01\xff\xff this is no hello"))
	_ = conn.Close()
	if code, _ := ask(plain, s.url+"/ready"); code != 200 {
		t.Errorf("after a malformed hello: %d", code)
	}
}

func TestTLSDemandsCertificates(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", 10)
	a.issue("kari", 20)
	s := startCold(t, func(*fakeapi.Server) {}, "--tls.enabled=true", "--tls.certFile="+a.path("server.crt"), "--tls.keyFile="+a.path("server.key"),
		"--tls.caFile="+a.path("ca.crt"), "--tls.clientAuth=require")
	s.url = strings.Replace(s.url, "http:", "https:", 1)
	kari := a.client("kari")
	eventually(t, "the gateway to be ready", func() bool { code, _ := ask(kari, s.url+"/ready"); return code == 200 })
	if code, _ := ask(a.client(""), s.url+"/ready"); code != 0 {
		t.Errorf("without a certificate: %d", code)
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
	if r := s.get("/api/v1/clusters", "X-Large", strings.Repeat("x", 9000)); r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a head that is too large: %s %s", r.Status, r.body)
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write([]byte("\x00\x01\x02 nonsense\r\n\r\n"))
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if answer, _ := io.ReadAll(conn); !bytes.Contains(answer, []byte("HTTP/1.1 400")) {
		t.Errorf("nonsense is answered with %q", answer)
	}
	slow, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	_, _ = slow.Write([]byte("POST /api/v1/preview HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n{"))
	_ = slow.SetReadDeadline(time.Now().Add(20 * time.Second))
	begun := time.Now()
	_, _ = io.ReadAll(slow)
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("a body that does not come is waited for %s", took)
	}
	if r := s.get("/api/v1/clusters"); r.StatusCode != 200 {
		t.Errorf("after all that: %s", r.Status)
	}
}

func TestHashKey(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := hashKey([]string{"n", "read+write"}, strings.NewReader("a key that is long enough\n"), &out); err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(strings.TrimSpace(out.String()), ": ")
	key, clear, err := parseKey(line, 0)
	if err != nil || clear || key.name != "n" || !key.scopes.has(scopeRead|scopeEvents) {
		t.Errorf("%s: %+v %v", line, key, err)
	}
	for _, bad := range []string{"short", "n md5:00", "n sha256:zz", "n sha256:00 read", "n sha256:" + strings.Repeat("0", 64) + " fly", "a b c d"} {
		if _, _, err := parseKey(bad, 0); err == nil {
			t.Errorf("the line %q was accepted", bad)
		}
	}
}

// TestFlood sends many requests at once, most of which are refused.
func TestFlood(t *testing.T) {
	t.Parallel()
	s := start(t, "--rateLimit.enabled=true", "--server.trustedProxies=127.0.0.1")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	codes := make(chan int, 400)
	for range 8 {
		go func() {
			for range 50 {
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/clusters", nil)
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
	if count[200] < 10 || count[200] > 15 || count[200]+count[429] != 400 {
		t.Errorf("answers to 400 requests: %v", count)
	}
	if r := s.get("/api/v1/clusters", "X-Forwarded-For", "203.0.113.2"); r.StatusCode != 200 {
		t.Errorf("somebody else: %s", r.Status)
	}
}
