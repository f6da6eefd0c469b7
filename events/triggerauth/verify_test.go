package triggerauth

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

const (
	issuer  = "https://kubernetes.default.svc"
	trigger = "system:serviceaccount:vitistack-system:create-vm-oidc-eventing.knative.dev-trigger"
)

var settings = Settings{Enabled: true, Audience: "vitistack-system/create-vm", Subjects: []string{trigger, "system:serviceaccount:team:*"}}

func encode(text []byte) string { return base64.RawURLEncoding.EncodeToString(text) }

// issue signs claims with a key, as the API server does.
func issue(t *testing.T, key crypto.Signer, head, body map[string]any) string {
	t.Helper()
	signed := unsigned(t, head, body)
	_, hash := algorithm(key.Public())
	h := hash.New()
	h.Write([]byte(signed))
	digest := h.Sum(nil)
	switch k := key.(type) {
	case *rsa.PrivateKey:
		signature, err := rsa.SignPKCS1v15(nil, k, hash, digest)
		if err != nil {
			t.Fatal(err)
		}
		return signed + "." + encode(signature)
	case *ecdsa.PrivateKey:
		r, s, err := ecdsa.Sign(rand.Reader, k, digest)
		if err != nil {
			t.Fatal(err)
		}
		size := (k.Curve.Params().BitSize + 7) / 8
		return signed + "." + encode(append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...))
	}
	t.Fatalf("no algorithm for %T", key)
	return ""
}

func unsigned(t *testing.T, head, body map[string]any) string {
	t.Helper()
	var parts []string
	for _, part := range []map[string]any{head, body} {
		text, err := json.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, encode(text))
	}
	return strings.Join(parts, ".")
}

// with returns a copy of a map with additions, without nil values.
func with(all, more map[string]any) map[string]any {
	all = maps.Clone(all)
	maps.Copy(all, more)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return all
}

func newRSA(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newECDSA(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// webKey returns a public key as the API server publishes it.
func webKey(id string, key crypto.PublicKey) map[string]any {
	name, _ := algorithm(key)
	out := map[string]any{"use": "sig", "kid": id, "alg": name}
	switch k := key.(type) {
	case *rsa.PublicKey:
		maps.Copy(out, map[string]any{"kty": "RSA", "n": encode(k.N.Bytes()), "e": encode(big.NewInt(int64(k.E)).Bytes())})
	case *ecdsa.PublicKey:
		point, _ := k.Bytes()
		half := len(point) / 2
		maps.Copy(out, map[string]any{"kty": "EC", "crv": k.Curve.Params().Name, "x": encode(point[1 : 1+half]), "y": encode(point[1+half:])})
	}
	return out
}

// server is the part of an API server that publishes the keys of tokens.
type server struct {
	mu       sync.Mutex
	keys     []map[string]any
	status   int
	requests int // for keys
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body any
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		// The address of the keys, from the point of view of other clients.
		body = map[string]any{"issuer": issuer, "jwks_uri": "https://attacker.example/jwks"}
	case "/openid/v1/jwks":
		s.requests++
		body = map[string]any{"keys": s.keys}
	}
	if s.status != 0 || body == nil {
		http.Error(w, "no", cmp.Or(s.status, http.StatusNotFound))
		return
	}
	_ = json.NewEncoder(w).Encode(body)
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func verifier(t *testing.T, s *server) *Verifier {
	t.Helper()
	api := httptest.NewServer(s)
	t.Cleanup(api.Close)
	v, err := New(settings, func() (*rest.Config, error) { return &rest.Config{Host: api.URL}, nil })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestVerify(t *testing.T) {
	t.Parallel()
	key, p256, p384, p521, other := newRSA(t), newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P384()), newECDSA(t, elliptic.P521()), newRSA(t)
	v := verifier(t, &server{keys: []map[string]any{
		webKey("r", key.Public()), webKey("p256", p256.Public()), webKey("p384", p384.Public()), webKey("p521", p521.Public()),
		{"kid": "odd", "kty": "OKP", "crv": "Ed25519", "x": encode(make([]byte, 32))}, {"kid": "off", "kty": "EC", "crv": "P-256", "x": encode(make([]byte, 32)), "y": encode(make([]byte, 32))},
	}})
	now := time.Now()
	head := map[string]any{"alg": "RS256", "kid": "r"}
	body := map[string]any{"iss": issuer, "sub": trigger, "aud": []string{settings.Audience}, "exp": now.Add(time.Hour).Unix(), "nbf": now.Unix()}
	token := func(head, body map[string]any) string { return "Bearer " + issue(t, key, head, body) }
	claim := func(name string, value any) string { return token(head, with(body, map[string]any{name: value})) }
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	symmetric := func(secret []byte) string {
		signed := unsigned(t, with(head, map[string]any{"alg": "HS256"}), body)
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(signed))
		return "Bearer " + signed + "." + encode(mac.Sum(nil))
	}
	good := token(head, body)
	parts := strings.Split(good, ".")
	swapped := strings.Split(claim("sub", "system:serviceaccount:vitistack-system:attacker"), ".")
	for name, tc := range map[string]struct {
		reason  string
		headers []string
		want    string // empty if it is accepted
	}{
		"RS256":        {"the algorithm of most API servers", []string{good}, ""},
		"ES256":        {"an API server with a key of this curve", []string{"Bearer " + issue(t, p256, map[string]any{"alg": "ES256", "kid": "p256"}, body)}, ""},
		"ES384":        {"an API server with a key of this curve", []string{"Bearer " + issue(t, p384, map[string]any{"alg": "ES384", "kid": "p384"}, body)}, ""},
		"ES512":        {"an API server with a key of this curve", []string{"Bearer " + issue(t, p521, map[string]any{"alg": "ES512", "kid": "p521"}, body)}, ""},
		"Lowercase":    {"the scheme is case-insensitive", []string{"bearer " + good[7:]}, ""},
		"OneAudience":  {"one audience may be a string", []string{claim("aud", settings.Audience)}, ""},
		"Audiences":    {"a token may have several audiences", []string{claim("aud", []string{"x", settings.Audience})}, ""},
		"Wildcard":     {"every ServiceAccount of a namespace is expected", []string{claim("sub", "system:serviceaccount:team:any")}, ""},
		"Skew":         {"clocks may differ a little", []string{token(head, with(body, map[string]any{"exp": now.Add(-leeway / 2).Unix(), "nbf": now.Add(leeway / 2).Unix()}))}, ""},
		"NoNotBefore":  {"the claim is optional", []string{claim("nbf", nil)}, ""},
		"None":         {"every pod can post", nil, "has no token: set authentication-oidc to enabled"},
		"Two":          {"a proxy may have verified the other token", []string{good, good}, "2 Authorization headers"},
		"Basic":        {"another scheme", []string{"Basic " + good[7:]}, "no bearer token"},
		"Empty":        {"the scheme has no token", []string{"Bearer "}, "no bearer token"},
		"Expired":      {"an expired token may have been stolen", []string{claim("exp", now.Add(-leeway-2*time.Second).Unix())}, "expired at"},
		"NoExpiry":     {"the token would be valid forever", []string{claim("exp", nil)}, "expired at"},
		"Early":        {"the token is not valid yet", []string{claim("nbf", now.Add(leeway+2*time.Second).Unix())}, "not valid before"},
		"Audience":     {"another function could forward its token", []string{claim("aud", []string{"vitistack-system/allocate-ip"})}, `set spec.subscriber.audience of the Trigger to "vitistack-system/create-vm"`},
		"NoAudience":   {"a token without an audience", []string{claim("aud", nil)}, "the audience"},
		"Subject":      {"a pod with the right to create tokens can choose any audience", []string{claim("sub", "system:serviceaccount:vitistack-system:default")}, "add the Trigger to OIDC_SUBJECTS"},
		"Prefix":       {"a name with the expected one as its prefix", []string{claim("sub", trigger+"s")}, "OIDC_SUBJECTS"},
		"Namespace":    {"a namespace with the expected one as its prefix", []string{claim("sub", "system:serviceaccount:teams:any")}, "OIDC_SUBJECTS"},
		"NoSubject":    {"a token without a subject", []string{claim("sub", nil)}, "OIDC_SUBJECTS"},
		"Issuer":       {"a token of another cluster", []string{claim("iss", "https://other.example")}, `issued by "https://other.example"`},
		"AlgNone":      {"a token without a signature", []string{"Bearer " + unsigned(t, map[string]any{"alg": "none", "kid": "r"}, body) + "."}, `signed by "none"`},
		"NoAlg":        {"a token without an algorithm", []string{"Bearer " + unsigned(t, map[string]any{"kid": "r"}, body) + "."}, `signed by ""`},
		"HS256":        {"a public key is no secret", []string{symmetric(public)}, `signed by "HS256"`},
		"HS256PEM":     {"a public key is no secret in any form", []string{symmetric(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))}, `signed by "HS256"`},
		"RS384":        {"the API server does not use this algorithm", []string{token(with(head, map[string]any{"alg": "RS384"}), body)}, `signed by "RS384"`},
		"OtherKind":    {"the algorithm of another kind of key", []string{"Bearer " + issue(t, p256, map[string]any{"alg": "ES256", "kid": "r"}, body)}, `signed by "ES256"`},
		"UnknownKey":   {"an unknown key", []string{"Bearer " + issue(t, other, with(head, map[string]any{"kid": "mine"}), body)}, `no key "mine"`},
		"NoKey":        {"a token without a key ID", []string{"Bearer " + issue(t, key, map[string]any{"alg": "RS256"}, body)}, `no key ""`},
		"OddKey":       {"a kind of key that Kubernetes does not use", []string{"Bearer " + issue(t, key, with(head, map[string]any{"kid": "odd"}), body)}, `no key "odd"`},
		"OffCurve":     {"an invalid key", []string{"Bearer " + issue(t, key, with(head, map[string]any{"kid": "off"}), body)}, `no key "off"`},
		"WrongKey":     {"another key with a known ID", []string{"Bearer " + issue(t, other, head, body)}, "signature of the token is wrong"},
		"Payload":      {"claims of one token with the signature of another", []string{parts[0] + "." + strings.Split(claim("exp", now.Add(24*time.Hour).Unix()), ".")[1] + "." + parts[2]}, "signature of the token is wrong"},
		"Header":       {"the header is signed as well", []string{"Bearer " + unsigned(t, with(head, map[string]any{"typ": "JWT"}), body) + "." + parts[2]}, "signature of the token is wrong"},
		"Swapped":      {"the expected claims with the signature of others", []string{parts[0] + "." + parts[1] + "." + swapped[2]}, "signature of the token is wrong"},
		"NoSignature":  {"an empty signature", []string{parts[0] + "." + parts[1] + "."}, "signature of the token is wrong"},
		"ShortECDSA":   {"an empty signature of the other kind", []string{"Bearer " + unsigned(t, map[string]any{"alg": "ES256", "kid": "p256"}, body) + "."}, "signature of the token is wrong"},
		"ZeroECDSA":    {"a signature of zeros, which faulty verifiers accept", []string{"Bearer " + unsigned(t, map[string]any{"alg": "ES256", "kid": "p256"}, body) + "." + encode(make([]byte, 64))}, "signature of the token is wrong"},
		"Critical":     {"an unknown critical extension", []string{token(with(head, map[string]any{"crit": []string{"x"}}), body)}, "critical extensions"},
		"Rubbish":      {"no token", []string{"Bearer rubbish"}, "not a JSON Web Token"},
		"NotBase64":    {"no token", []string{"Bearer a.b.!"}, "not a JSON Web Token"},
		"NotJSON":      {"no token", []string{"Bearer " + encode([]byte("{")) + "." + encode([]byte("{}")) + "."}, "not a JSON Web Token"},
		"Number":       {"a subject that is no string", []string{claim("sub", 7)}, "not a JSON Web Token"},
		"FourParts":    {"no token", []string{good + ".x"}, "not a JSON Web Token"},
		"Serialised":   {"the JSON serialization of a token", []string{`Bearer {"payload":"","signatures":[]}`}, "not a JSON Web Token"},
		"LongAudience": {"a long value from the sender is truncated", []string{claim("aud", strings.Repeat("x", 5000))}, "the audience"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := v.Verify(t.Context(), tc.headers)
			if (tc.want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrUnavailable)) {
				t.Fatalf("%s: %v, want %q", tc.reason, err, tc.want)
			}
			if err != nil && (len(err.Error()) > 512 || strings.Contains(err.Error(), parts[2]) || strings.Contains(err.Error(), parts[1])) {
				t.Errorf("the error is long or contains the token: %v", err)
			}
		})
	}
}

// TestKeysAreReadRarely counts the requests to the API server, with a clock of its own.
func TestKeysAreReadRarely(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key, next := newECDSA(t, elliptic.P256()), newECDSA(t, elliptic.P256())
		token := func(key *ecdsa.PrivateKey, id string) []string {
			return []string{"Bearer " + issue(t, key, map[string]any{"alg": "ES256", "kid": id}, map[string]any{
				"iss": issuer, "sub": trigger, "aud": settings.Audience, "exp": time.Now().Add(24 * time.Hour).Unix(),
			})}
		}
		fetches, published, fault := 0, map[string]crypto.PublicKey{"a": key.Public()}, error(nil)
		v := &Verifier{settings: settings, now: time.Now, keys: &keySource{now: time.Now, fetch: func(context.Context) (*keySet, error) {
			fetches++
			return &keySet{issuer: issuer, keys: maps.Clone(published)}, fault
		}}}
		see := func(reason string, headers []string, want string, requests int) {
			t.Helper()
			err := v.Verify(t.Context(), headers)
			if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", reason, err, want)
			}
			if fetches != requests {
				t.Errorf("%s: %d requests, want %d", reason, fetches, requests)
			}
		}
		var at sync.WaitGroup
		for range 50 {
			at.Go(func() {
				if err := v.Verify(t.Context(), token(key, "a")); err != nil {
					t.Error(err)
				}
			})
		}
		at.Wait()
		see("fifty concurrent verifications share one request", token(key, "a"), "", 1)
		see("a malformed token causes no request", nil, "no token", 1)
		see("the keys were read a moment ago", token(next, "b"), `no key "b"`, 1)
		time.Sleep(fetchPause)
		see("the API server may have a new key", token(next, "b"), `no key "b"`, 2)
		for range 1000 {
			see("hostile tokens", token(next, rand.Text()), "no key", 2)
		}
		see("hostile tokens do not affect valid ones", token(key, "a"), "", 2)
		published["b"] = next.Public()
		time.Sleep(fetchPause)
		see("a key was added", token(next, "b"), "", 3)
		delete(published, "a")
		see("a known key causes no request", token(key, "a"), "", 3)
		time.Sleep(keysLast + time.Second)
		see("a key was revoked", token(key, "a"), `no key "a"`, 4)
		time.Sleep(keysLast + time.Second)
		fault = ErrUnavailable
		see("the key may be revoked", token(next, "b"), ErrUnavailable.Error(), 5)
		see("a failed request is not repeated at once", token(next, "b"), ErrUnavailable.Error(), 5)
		time.Sleep(fetchPause)
		fault = nil
		see("the API server answers again", token(next, "b"), "", 6)
	})
}

// TestFetchFails has an API server that returns no keys: the delivery has to be retried.
func TestFetchFails(t *testing.T) {
	t.Parallel()
	key := newECDSA(t, elliptic.P256())
	good := []string{"Bearer " + issue(t, key, map[string]any{"alg": "ES256", "kid": "a"}, map[string]any{
		"iss": issuer, "sub": trigger, "aud": settings.Audience, "exp": time.Now().Add(time.Hour).Unix(),
	})}
	for name, tc := range map[string]struct {
		status int
		says   string
	}{
		"Forbidden":   {http.StatusForbidden, "bind ClusterRole system:service-account-issuer-discovery"},
		"NotFound":    {http.StatusNotFound, "--service-account-issuer"},
		"Overloaded":  {http.StatusTooManyRequests, "429"},
		"Unavailable": {http.StatusServiceUnavailable, "503"},
	} {
		s := &server{status: tc.status, keys: []map[string]any{webKey("a", key.Public())}}
		v := verifier(t, s)
		if err := v.Verify(t.Context(), good); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
		s.set(func() { s.status = 0 })
		v.keys.tried = time.Time{}
		if err := v.Verify(t.Context(), good); err != nil {
			t.Errorf("%s: afterwards: %v", name, err)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, enabled, audience, subjects, want string
	}{
		"Off":         {"nothing is configured", "", "", "", ""},
		"Prepared":    {"the manifests name the sender, but verification is off", "", "a", trigger, ""},
		"False":       {"verification is switched off", "false", "", "", ""},
		"On":          {"everything is configured", "true", "a", trigger + ", system:serviceaccount:team:*", ""},
		"Yes":         {"the gateway reads the same words", "yes", "a", trigger, ""},
		"Word":        {"an unknown word must not switch verification off", "yes please", "a", trigger, `OIDC_ENABLED: "yes please" is neither true nor false`},
		"NoAudience":  {"any token would be accepted", "true", "", trigger, "set it to spec.subscriber.audience"},
		"NoSubjects":  {"any ServiceAccount would be accepted", "true", "a", " , ", "set it to system:serviceaccount:NAMESPACE:"},
		"AllSubjects": {"every subject is no restriction", "true", "a", "*", `OIDC_SUBJECTS has "*"`},
		"AnyPlace":    {"every namespace is no restriction", "true", "a", "system:serviceaccount:*", "write system:serviceaccount:NAMESPACE:NAME"},
		"Namespaces":  {"a namespace has no wildcard", "true", "a", "system:serviceaccount:te*:x", "NAMESPACE:NAME"},
		"Middle":      {"only the end may be a wildcard", "true", "a", "system:serviceaccount:team:x*y", "may end in *"},
		"User":        {"Triggers use ServiceAccounts", "true", "a", "alice", "system:serviceaccount:"},
		"NoNamespace": {"a name without a namespace is ambiguous", "true", "a", "system:serviceaccount:x", "NAMESPACE:NAME"},
	} {
		env := map[string]string{"OIDC_ENABLED": tc.enabled, "OIDC_AUDIENCE": tc.audience, "OIDC_SUBJECTS": tc.subjects}
		s, err := FromEnvironment(func(name string) string { return env[name] })
		var v *Verifier
		if err == nil {
			v, err = New(s, func() (*rest.Config, error) { return &rest.Config{Host: "http://127.0.0.1:1"}, nil })
		}
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q: %s", name, err, tc.want, tc.reason)
		}
		if on := (tc.enabled == "true" || tc.enabled == "yes") && tc.want == ""; on != (v != nil) {
			t.Errorf("%s: there is a verifier: %v: %s", name, v != nil, tc.reason)
		}
	}
}

// FuzzVerify checks that only the valid token is accepted, and that no text causes a panic.
func FuzzVerify(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), bytes.NewReader(make([]byte, 1024)))
	if err != nil {
		f.Fatal(err)
	}
	v := &Verifier{settings: settings, now: time.Now, keys: &keySource{now: time.Now, fetch: func(context.Context) (*keySet, error) {
		return &keySet{issuer: issuer, keys: map[string]crypto.PublicKey{"a": key.Public(), "": key.Public()}}, nil
	}}}
	f.Add(`{"alg":"ES256","kid":"a"}`, `{"iss":"`+issuer+`","sub":"`+trigger+`","aud":"vitistack-system/create-vm","exp":9999999999}`, make([]byte, 64))
	f.Add(`{"alg":"none"}`, `{"aud":[["x"]],"exp":-1}`, []byte{})
	f.Fuzz(func(t *testing.T, head, body string, signature []byte) {
		if v.Verify(t.Context(), []string{"Bearer " + encode([]byte(head)) + "." + encode([]byte(body)) + "." + encode(signature)}) == nil {
			t.Errorf("%s %s is verified", head, body)
		}
	})
}
