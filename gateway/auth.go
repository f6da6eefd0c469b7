package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
	"github.com/vitistack/stack/gateway/internal/session"
)

// caller is who sends a request.
type caller struct {
	Name   string `json:"name"`
	Scopes scopes `json:"scopes"`
	// Namespaces are those that an API key is limited to, or nil.
	Namespaces []string `json:"namespaces"`
	// User is the owner of a token who reads by rights in namespaces, or nil.
	User *apiserver.User `json:"user,omitempty"`
}

// cookieName is the cookie that a browser keeps its session in.
const cookieName = "vitistack_session"

// sessionPurpose tells the secret that seals sessions from others.
const sessionPurpose = "browser sessions"

// credential is the key or token that a request brings, or empty.
func (g *gateway) credential(c *fiber.Ctx) string {
	a := &g.config.Auth
	header := c.Get(a.KeyHeader)
	if header == "" || a.KeyPrefix == "" {
		return header
	}
	if prefix, rest, ok := strings.Cut(header, " "); ok && strings.EqualFold(prefix, a.KeyPrefix) {
		return strings.TrimSpace(rest)
	}
	return ""
}

// keyOf returns the hash of the API key that a request brings, or that its session was
// begun with. A session is believed only where the gateway's own page sends it.
func (g *gateway) keyOf(c *fiber.Ctx) (hash [sha256.Size]byte, ok bool) {
	if text := g.credential(c); text != "" {
		return sha256.Sum256([]byte(text)), true
	}
	token := c.Cookies(cookieName)
	if token == "" || !sameSite(c) {
		return hash, false
	}
	secret, err := g.sessionSecret()
	if err != nil {
		return hash, false
	}
	hash, err = session.Open(secret, token, time.Now())
	return hash, err == nil
}

// sessionSecret is what seals sessions, at all replicas.
func (g *gateway) sessionSecret() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
	defer cancel()
	return g.signer.Derive(ctx, sessionPurpose, session.KeySize)
}

// identify finds out who sends a request, without asking who a token belongs to. pending
// is a token that only the API server knows about.
func (g *gateway) identify(c *fiber.Ctx) (who caller, pending string) {
	if hash, ok := g.keyOf(c); ok {
		// A browser's session is for the page, which shows the whole installation.
		if key, ok := g.keys.findHash(hash); ok && (key.namespaces == nil || g.credential(c) != "") {
			return caller{Name: "key/" + key.name, Scopes: key.scopes, Namespaces: key.namespaces}, ""
		}
	}
	if text := g.credential(c); text != "" && g.config.Auth.TokenReview {
		return caller{}, utils.CopyString(text)
	}
	if certificate := certificateOf(c); certificate != nil {
		return caller{Name: "certificate/" + certificate.Subject.CommonName, Scopes: g.certificateScopes}, ""
	}
	return caller{}, ""
}

// standing returns what tells whether the caller of a request, which is admitted, may
// still read. Of a key it keeps the hash; of a token the text, which is what the API
// server is asked about. While that does not answer, what it last said is good.
func (g *gateway) standing(c *fiber.Ctx) func() bool {
	if !g.config.Auth.Enabled {
		return func() bool { return true }
	}
	if _, pending := g.identify(c); pending != "" {
		return func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
			defer cancel()
			who, err := g.review(ctx, pending)
			return err != nil || who.Scopes.has(scopeRead) && !who.limited()
		}
	}
	hash, _ := g.keyOf(c)
	if _, ok := g.keys.findHash(hash); !ok && certificateOf(c) != nil {
		// A certificate is good for as long as its connection.
		return func() bool { return true }
	}
	return func() bool {
		key, ok := g.keys.findHash(hash)
		return ok && key.scopes.has(scopeRead) && key.namespaces == nil
	}
}

// certificateOf is the caller's certificate, or nil where it has shown none that is
// trusted.
func certificateOf(c *fiber.Ctx) *x509.Certificate {
	state := c.Context().TLSConnectionState()
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}

// sameSite tells whether a request with a cookie comes from the gateway's own
// page. Browsers say where a request comes from that could change something.
func sameSite(c *fiber.Ctx) bool {
	if method := c.Method(); method == fiber.MethodGet || method == fiber.MethodHead {
		return true
	}
	if site := c.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(c.Get(fiber.HeaderOrigin))
	return err == nil && origin.Host == string(c.Request().Host())
}

// Bounds of how long the API server's word about a token is taken.
const (
	knownToken   = time.Minute
	unknownToken = 10 * time.Second
)

// review asks the API server about a token, or remembers what it said.
func (g *gateway) review(ctx context.Context, token string) (caller, error) {
	sum := sha256.Sum256([]byte(token))
	key := "caller:" + base64.RawURLEncoding.EncodeToString(sum[:])
	if kept, ok := g.cache.Get(ctx, key); ok {
		var who caller
		if err := json.Unmarshal(kept, &who); err == nil {
			return who, nil
		}
	}
	who, err := g.ask(ctx, token)
	if err != nil {
		return caller{}, err
	}
	ttl := unknownToken
	if who.Name != "" {
		ttl = min(knownToken, g.config.Cache.TTL)
	}
	if encoded, err := json.Marshal(who); err == nil {
		g.cache.Set(ctx, key, encoded, ttl)
	}
	return who, nil
}

// rightsPath stands for the API in the roles of Kubernetes. It is not the path
// that the API is served at: every user may get all that is below /api of the API
// server.
const rightsPath = "/vitistack" + base

// ask finds out who a token belongs to, and what its owner may do. Who may not read the whole
// installation reads by namespace.
func (g *gateway) ask(ctx context.Context, token string) (caller, error) {
	user, ok, err := g.kubernetes.Authenticate(ctx, token)
	if err != nil || !ok {
		return caller{}, err
	}
	who := caller{Name: "user/" + user.Name}
	for _, right := range []struct {
		verb, path string
		scope      scopes
	}{{"get", rightsPath, scopeRead}, {"post", rightsPath, scopeWrite}, {"post", rightsPath + "/events", scopeEvents}} {
		allowed, err := g.allowed(ctx, user, right.verb, right.path)
		if err != nil {
			return caller{}, err
		}
		if allowed {
			who.Scopes |= right.scope
		}
	}
	if !who.Scopes.has(scopeRead) {
		who.Scopes |= scopeRead
		who.User = &user
	}
	return who, nil
}

func (g *gateway) allowed(ctx context.Context, user apiserver.User, verb, path string) (bool, error) {
	return g.kubernetes.Allowed(ctx, user, verb, path)
}

// admit lets a request pass, or is the problem that keeps it out. The rate limit
// comes before the API server is asked, so that nobody makes the gateway flood it.
func (g *gateway) admit(c *fiber.Ctx, e *endpoint) error {
	scope := e.scope
	if e.metrics && g.keys.limited() {
		scope = scopeRead
	}
	secured := g.config.Auth.Enabled && scope != 0
	var who caller
	var pending string
	if secured || g.limiter.byKey {
		who, pending = g.identify(c)
	}
	if e.limited {
		if err := g.limit(c, e, who); err != nil {
			return err
		}
	}
	if !secured {
		return nil
	}
	if pending != "" {
		ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
		defer cancel()
		var err error
		if who, err = g.review(ctx, pending); err != nil {
			g.log.Warn("Cannot review a token", "component", "auth", "error", err.Error())
			return problem.New(http.StatusServiceUnavailable, "the Kubernetes API does not say who the token belongs to: try again later, or use an API key")
		}
	}
	if who.Name == "" {
		g.challenge(c)
		return problem.New(http.StatusUnauthorized, "a key is needed: send it as %s: %s", g.config.Auth.KeyHeader, strings.TrimSpace(g.config.Auth.KeyPrefix+" KEY"))
	}
	if !who.Scopes.has(scope) {
		return problem.New(http.StatusForbidden, "%s may %s, and this needs %s", who.Name, strings.Join(who.Scopes.names(), ", "), strings.Join(scope.names(), ", "))
	}
	if who.limited() && !e.byNamespace {
		return problem.New(http.StatusForbidden, "%s, and this shows the whole installation: use %s/clusters, %s/machines or %s/events, or a key without namespaces", who.what(), base, base, base)
	}
	c.Locals(callerKey, who)
	return nil
}

// challenge tells a caller that it has to say who it is. A challenge begins with a
// scheme, also where nothing stands before a key.
func (g *gateway) challenge(c *fiber.Ctx) {
	c.Set(fiber.HeaderWWWAuthenticate, cmp.Or(g.config.Auth.KeyPrefix, "ApiKey")+` realm="vitistack"`)
}

// sessionJSON is who a browser is logged in as.
type sessionJSON struct {
	// Required tells whether a key is needed at all.
	Required bool     `json:"required"`
	Name     string   `json:"name,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
}

// showSession tells a browser whether it has to log in.
func (g *gateway) showSession(c *fiber.Ctx) error {
	out := sessionJSON{Required: g.config.Auth.Enabled}
	who, pending := g.identify(c)
	if pending != "" {
		ctx, cancel := context.WithTimeout(context.Background(), g.config.APITimeout)
		defer cancel()
		who, _ = g.review(ctx, pending)
	}
	out.Name, out.Scopes = who.Name, who.Scopes.names()
	return response.JSON(c, http.StatusOK, out)
}

// beginSession logs a browser in: it keeps a session in a cookie that its scripts cannot
// read and that other sites cannot use. The session ends with the key, after
// session.Lifetime, and with the gateway's signing key.
func (g *gateway) beginSession(c *fiber.Ctx) error {
	var in struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(c.Request().Body(), &in); err != nil || in.Key == "" {
		return problem.New(http.StatusBadRequest, `write {"key":"..."}`)
	}
	key, ok := g.keys.find(in.Key)
	if !ok {
		return problem.New(http.StatusUnauthorized, "the key is not valid")
	}
	if key.namespaces != nil {
		return problem.New(http.StatusForbidden, "the key reads the namespaces %s alone, and the page shows the whole installation: send the key to %s/clusters and its like, or log in with a key without namespaces", strings.Join(key.namespaces, ", "), base)
	}
	secret, err := g.sessionSecret()
	if err != nil {
		g.log.Warn("Cannot begin a session", "component", "auth", "error", err.Error())
		return problem.New(http.StatusServiceUnavailable, "no session can be begun now, since the Kubernetes API does not answer: try again later, or send the key with each request")
	}
	token, err := session.Seal(secret, sha256.Sum256([]byte(in.Key)), time.Now())
	if err != nil {
		return err
	}
	g.setCookie(c, token, 0)
	c.Status(http.StatusNoContent)
	return nil
}

// endSession logs a browser out.
func (g *gateway) endSession(c *fiber.Ctx) error {
	g.setCookie(c, "", -1)
	c.Status(http.StatusNoContent)
	return nil
}

func (g *gateway) setCookie(c *fiber.Ctx, value string, age int) {
	c.Cookie(&fiber.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: age, HTTPOnly: true, SessionOnly: age == 0,
		Secure: g.config.TLS.Enabled || c.Protocol() == "https", SameSite: fiber.CookieSameSiteStrictMode,
	})
}
