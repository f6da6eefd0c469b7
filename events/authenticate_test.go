package events_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/triggerauth"
)

// newIssuer returns a verifier with an API server, a token that it accepts, and a function that stops the API server.
func newIssuer(t *testing.T) (v *triggerauth.Verifier, token string, out *atomic.Bool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	out = &atomic.Bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if out.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": "https://k", "keys": []map[string]string{{"kid": "a", "crv": "P-256", "x": encode(point[1:33]), "y": encode(point[33:])}}})
	}))
	t.Cleanup(server.Close)
	const sender = "system:serviceaccount:vitistack-system:test-function-oidc-eventing.knative.dev-trigger"
	v, err = triggerauth.New(triggerauth.Settings{Enabled: true, Audience: "test-function", Subjects: []string{sender}}, func() (*rest.Config, error) {
		return &rest.Config{Host: server.URL}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	signed := encode([]byte(`{"alg":"ES256","kid":"a"}`)) + "." +
		encode(fmt.Appendf(nil, `{"iss":"https://k","aud":"test-function","sub":%q,"exp":%d}`, sender, time.Now().Add(time.Hour).Unix()))
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	return v, signed + "." + encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)), out
}

// TestServeAuthenticates rejects a sender that is not the Trigger before its event is read.
func TestServeAuthenticates(t *testing.T) {
	t.Parallel()
	v, token, _ := newIssuer(t)
	handled := 0
	url, log, _ := serve(t, func(context.Context, event.Event) (*event.Event, error) {
		handled++
		return nil, nil
	}, events.WithVerifier(v))
	first, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(first.Body); !strings.Contains(string(text), `vitistack_function_deliveries_total{function="test-function",outcome="unauthenticated"}`) {
		t.Errorf("the counter of refused deliveries does not exist before the first: %s", text)
	}
	_ = first.Body.Close()
	forged := token[:len(token)-4] + "AAAA"
	for name, tc := range map[string]struct{ reason, authorization, says string }{
		"None":   {"every pod can post", "", "set authentication-oidc to enabled"},
		"Forged": {"the signature belongs to another token", "Bearer " + forged, "signature of the token is wrong"},
	} {
		headers := map[string]string{"Authorization": tc.authorization}
		for key, value := range binaryHeaders {
			headers[key] = value
		}
		if tc.authorization == "" {
			delete(headers, "Authorization")
		}
		body, unwritten := io.Pipe() // the server must not read it
		res := post(t, url, headers, body)
		_ = unwritten.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusUnauthorized || res.Header.Get("WWW-Authenticate") != "Bearer" || !strings.Contains(string(text), tc.says) {
			t.Errorf("%s: %s %q %v, want 401 that says %q: %s", name, res.Status, text, err, tc.says, tc.reason)
		}
	}
	if handled != 0 {
		t.Errorf("%d rejected events were handled", handled)
	}
	headers := map[string]string{"Authorization": "Bearer " + token}
	for key, value := range binaryHeaders {
		headers[key] = value
	}
	if res := post(t, url, headers, strings.NewReader("{}")); res.StatusCode != http.StatusAccepted || handled != 1 {
		t.Errorf("the Trigger's delivery: %s, handled %d times", res.Status, handled)
	}
	if strings.Contains(log.String(), strings.Split(token, ".")[1]) {
		t.Errorf("the log contains a token:\n%s", log)
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": `vitistack_function_deliveries_total{function="test-function",outcome="unauthenticated"}`} {
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, want %s without a token\n%s", path, res.Status, want, text)
		}
	}
}

// TestServeWaitsForKeys answers 503 while the API server cannot verify tokens, so that the Broker
// retries.
func TestServeWaitsForKeys(t *testing.T) {
	t.Parallel()
	v, token, out := newIssuer(t)
	out.Store(true)
	url, _, _ := serve(t, func(context.Context, event.Event) (*event.Event, error) { return nil, nil }, events.WithVerifier(v))
	headers := map[string]string{"Authorization": "Bearer " + token}
	if res := post(t, url, headers, strings.NewReader("{}")); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s, want 503, which Knative retries", res.Status)
	}
}
