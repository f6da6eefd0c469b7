package app

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/events/dsse"
	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/tests/fakeapi"
)

// keyLine makes a key, and the line that configures it.
func keyLine(t *testing.T, name, granted string) (key, line string) {
	t.Helper()
	var out bytes.Buffer
	if err := auth.HashKey([]string{name, granted}, strings.NewReader(""), &out); err != nil {
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
		"Wrong":     {reason: "a key that is not configured", path: "/api/v1/clusters", key: reader + "x", want: 401},
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

// TestKeyInAHeaderOfItsOwn has keys in X-API-Key with nothing before them.
func TestKeyInAHeaderOfItsOwn(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "reader", "read")
	s := start(t, "--auth.enabled=true", "--auth.keys="+line, "--auth.keyHeader=X-API-Key", "--auth.keyPrefix=", "--logging.includeHeaders=true")
	if r := s.get("/api/v1/clusters", "X-API-Key", key); r.StatusCode != http.StatusOK {
		t.Errorf("with the key: %s %s", r.Status, r.body)
	}
	r := s.get("/api/v1/clusters", "X-Shown", "a header that is no secret")
	if got := r.Header.Get("WWW-Authenticate"); got != `ApiKey realm="vitistack"` {
		t.Errorf("the challenge is %s", got)
	}
	if !strings.Contains(string(r.body), "send it as X-API-Key: KEY") {
		t.Errorf("without a key: %s %s", r.Status, r.body)
	}
	eventually(t, "the access log", func() bool { return strings.Contains(s.log.String(), "a header that is no secret") })
	if strings.Contains(s.log.String(), key) {
		t.Error("the log holds the key")
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

// TestStreamEndsWithItsCredential takes a key and a token away from two who look at the
// stream.
func TestStreamEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "leaver", "read")
	_, other := keyLine(t, "other", "read")
	path := filepath.Join(t.TempDir(), "keys")
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(line)
	var reviews fakeReviews
	var expired atomic.Bool
	s := startCold(t, func(api *fakeapi.Server) {
		api.Answer("tokenreviews", func(body []byte) any {
			if expired.Load() {
				body = nil
			}
			return reviews.token(body)
		})
		api.Answer("subjectaccessreviews", reviews.access)
	}, "--auth.enabled=true", "--auth.tokenReview=true", "--auth.keysFile="+path, "--stream.heartbeat=1s", "--cache.ttl=1s")
	s.waitReady()
	open := func(credential string) <-chan struct{} {
		req, err := http.NewRequest(http.MethodGet, s.url+"/api/v1/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+credential)
		res, err := http.DefaultClient.Do(req)
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("the stream: %v %v", res, err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}()
		return ended
	}
	over := func(stream <-chan struct{}) func() bool {
		return func() bool {
			select {
			case <-stream:
				return true
			default:
				return false
			}
		}
	}
	byKey, byToken := over(open(key)), over(open("kari"))
	write(other)
	eventually(t, "the end of the key's stream", byKey)
	if byToken() {
		t.Error("the token's stream ended with the key")
	}
	expired.Store(true)
	eventually(t, "the end of the token's stream", byToken)
}

// TestStandingOfAKeyThatIsGone has a key go between its admission and the beginning
// of the stream.
func TestStandingOfAKeyThatIsGone(t *testing.T) {
	t.Parallel()
	_, line := keyLine(t, "other", "read")
	s := start(t, "--auth.enabled=true", "--auth.keys="+line)
	app, allowed := fiber.New(), true
	app.Get("/", func(c *fiber.Ctx) error {
		allowed = s.app.auth.StillAdmitted(c)()
		return nil
	})
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set("Authorization", "Bearer a-key-that-is-gone")
	if _, err := app.Test(req); err != nil || allowed {
		t.Errorf("its stream would go on without end: %v", err)
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
	_, token, _ := strings.Cut(cookie, "=")
	hash := sha256.Sum256([]byte(key))
	if strings.Contains(token, key) || strings.Contains(token, hex.EncodeToString(hash[:])) {
		t.Errorf("the cookie holds the key: %s", cookie)
	}
	if r := s.get("/api/v1/clusters", "Authorization", "Bearer "+token); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("the session is a key: %s", r.Status)
	}
	if r := s.get("/api/v1/clusters", "Cookie", "vitistack_session="+key); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a key is a session: %s", r.Status)
	}
	elsewhere := start(t, "--auth.enabled=true", "--auth.keys="+line)
	if r := elsewhere.get("/api/v1/clusters", "Cookie", cookie); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("the session is good at another gateway: %s", r.Status)
	}
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
	for _, scopes := range []string{"write", "events"} {
		blind, line := keyLine(t, "blind", scopes)
		r := start(t, "--auth.enabled=true", "--auth.keys="+line).do(http.MethodPost, "/api/v1/session", `{"key":"`+blind+`"}`)
		if r.StatusCode != http.StatusForbidden || !bytes.Contains(r.body, []byte("add read to the scopes")) || r.Header.Get("Set-Cookie") != "" {
			t.Errorf("a key that may not read, with %s: %s %s", scopes, r.Status, r.body)
		}
		r = start(t, "--auth.keys="+line).do(http.MethodPost, "/api/v1/session", `{"key":"`+blind+`"}`)
		if r.StatusCode != http.StatusNoContent {
			t.Errorf("a key with %s where anonymous callers may read: %s %s", scopes, r.Status, r.body)
		}
	}
	if out := s.do(http.MethodDelete, "/api/v1/session", "").Header.Get("Set-Cookie"); !strings.Contains(out, "vitistack_session"+"=;") {
		t.Errorf("log out: %s", out)
	}
}

// TestSessionAfterARestartWithoutTheAPIServer has a gateway start that cannot read its signing key. It cannot tell whether a session is valid, so
// the page has to try again, and must not ask for a key.
func TestSessionAfterARestartWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "me", "read")
	first := start(t, "--auth.enabled=true", "--auth.keys="+line)
	cookie, _, _ := strings.Cut(first.do(http.MethodPost, "/api/v1/session", `{"key":"`+key+`"}`).Header.Get("Set-Cookie"), ";")
	signing, err := first.app.kubernetes.SigningKeys(platformNamespace()).Secret(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	restarted := startCold(t, func(api *fakeapi.Server) {
		api.Put(t, "secrets", &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: platformNamespace(), Name: dsse.SecretName}, Data: signing.Data,
		})
		api.FailResource(dsse.SecretName, http.StatusServiceUnavailable)
	}, "--auth.enabled=true", "--auth.keys="+line)
	restarted.waitReady()
	for _, path := range []string{"/api/v1/session", "/api/v1/clusters"} {
		if r := restarted.get(path, "Cookie", cookie); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
			t.Errorf("%s without the signing key: %s %s", path, r.Status, r.body)
		}
	}
	if r := restarted.get("/api/v1/session"); r.StatusCode != http.StatusOK {
		t.Errorf("a browser without a session: %s", r.Status)
	}
	if r := restarted.get("/api/v1/clusters", "Authorization", "Bearer "+key, "Cookie", cookie); r.StatusCode != http.StatusOK {
		t.Errorf("a key, which needs no signing key: %s", r.Status)
	}
	restarted.api.FailResource(dsse.SecretName, 0)
	eventually(t, "the session", func() bool { return restarted.get("/api/v1/clusters", "Cookie", cookie).StatusCode == http.StatusOK })
	if got := restarted.get("/api/v1/session", "Cookie", cookie).object(t); got["name"] != "key/me" {
		t.Errorf("the session is %v", got)
	}
}

// TestLogoutBeyondTheRateLimit has a user log out who has just opened many views. A browser whose logout is refused would keep the session.
func TestLogoutBeyondTheRateLimit(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "me", "read")
	s := start(t, "--auth.enabled=true", "--auth.keys="+line, "--rateLimit.enabled=true", "--rateLimit.requestsPerMinute=1", "--rateLimit.burstSize=2")
	cookie, _, _ := strings.Cut(s.do(http.MethodPost, "/api/v1/session", `{"key":"`+key+`"}`).Header.Get("Set-Cookie"), ";")
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if r := s.get("/api/v1/clusters", "Cookie", cookie); r.StatusCode != want {
			t.Fatalf("a view: %s, want %d", r.Status, want)
		}
	}
	if r := s.do(http.MethodDelete, "/api/v1/session", "", "Cookie", cookie); r.StatusCode != http.StatusNoContent || !strings.Contains(r.Header.Get("Set-Cookie"), "vitistack_session=;") {
		t.Errorf("log out: %s, %s", r.Status, r.Header.Get("Set-Cookie"))
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
		t.Errorf("an unknown token: %d", got)
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
	for _, origin := range []string{"https://ok.example", "https://bad.example", ""} {
		if got := s.get("/api/v1/clusters", "Origin", origin).Header.Values("Vary"); !slices.Equal(got, []string{"Origin", "Accept-Encoding"}) {
			t.Errorf("an answer to %q varies with %v", origin, got)
		}
	}
	if got := s.get("/api/v1/clusters", "Origin", "https://ok.example").Header.Get("Access-Control-Expose-Headers"); !strings.Contains(got, "X-Total-Count") {
		t.Errorf("exposed headers: %s", got)
	}
}

// TestWebhookSecretIsReadAgain replaces the secret by which events to an endpoint are signed.
func TestWebhookSecretIsReadAgain(t *testing.T) {
	t.Parallel()
	first, second := standardwebhooks.Secret("0123456789abcdef0123456789abcdef"), standardwebhooks.Secret("another secret of thirty-two byte")
	path := filepath.Join(t.TempDir(), "secret")
	write := func(secret standardwebhooks.Secret) {
		if err := os.WriteFile(path, []byte("whsec_"+base64.StdEncoding.EncodeToString(secret)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var signedByFirst, signedBySecond atomic.Int32
	endpoint := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		for secret, count := range map[*standardwebhooks.Secret]*atomic.Int32{&first: &signedByFirst, &second: &signedBySecond} {
			if secret.Verify(r.Header.Get(standardwebhooks.HeaderID), r.Header.Get(standardwebhooks.HeaderTimestamp), r.Header.Get(standardwebhooks.HeaderSignature), body, time.Now()) == nil {
				count.Add(1)
			}
		}
	}))
	t.Cleanup(endpoint.Close)
	write(first)
	s := start(t, "--handlers.webhook.enabled=true", "--handlers.webhook.endpoints="+fmt.Sprintf(`[{"url":%q,"secretFile":%q}]`, endpoint.URL, path))
	s.api.Put(t, "machines", newborn("first", "Running"))
	eventually(t, "an event with the first signature", func() bool { return signedByFirst.Load() > 0 })
	write(second)
	made := 0
	eventually(t, "an event with the second signature", func() bool {
		s.api.Put(t, "machines", newborn(fmt.Sprintf("next-%d", made), "Running"))
		made++
		return signedBySecond.Load() > 0
	})
}
