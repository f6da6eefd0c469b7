// Package auth decides who sends a request, whether it is admitted, and which namespaces its caller may read.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/filewatch"
	"github.com/vitistack/stack/gateway/internal/session"
)

// Options are the parts that an Authenticator uses.
type Options struct {
	Settings config.Auth
	// Timeout bounds each request to the API server.
	Timeout time.Duration
	// CacheTTL bounds how long answers of the API server are cached.
	CacheTTL time.Duration
	// SecureCookies marks session cookies for HTTPS only.
	SecureCookies bool
	// API reviews tokens and rights.
	API *apiserver.Client
	// Cache keeps the answers of API.
	Cache *cache.Cache
	// DeriveKey returns a secret of size bytes for a purpose, which is the same in all replicas.
	DeriveKey func(ctx context.Context, purpose string, size int) ([]byte, error)
	Log       *slog.Logger
}

// Authenticator authenticates requests by API key, session, token of the Kubernetes API, or client certificate.
type Authenticator struct {
	Options
	keys              keyring
	certificateScopes Scopes
}

// New returns an Authenticator and loads its keys. An invalid setting is an error that names its key.
func New(o Options) (*Authenticator, error) {
	a := &Authenticator{Options: o}
	var err error
	if a.certificateScopes, err = parseScopes(o.Settings.CertificateScopes); err != nil {
		return nil, fmt.Errorf("read configuration: key auth.certificateScopes: %w", err)
	}
	if err := filewatch.Load(o.Settings.KeysFile, a.loadKeys); err != nil {
		return nil, fmt.Errorf("read configuration: keys auth.keys and auth.keysFile: %w", err)
	}
	if !o.Settings.Enabled {
		o.Log.Warn("The gateway accepts unauthenticated reads: set auth.enabled to require an API key")
	}
	return a, nil
}

// FollowKeys loads the file of keys again when it changes, until ctx ends.
func (a *Authenticator) FollowKeys(ctx context.Context) {
	filewatch.Follow(ctx, a.Settings.KeysFile, a.loadKeys, a.Log)
}

func (a *Authenticator) loadKeys(file []byte) error {
	return a.keys.load(a.Settings.Keys, file, a.Log)
}

// credential returns the key or token in a request's header, or nothing.
func (a *Authenticator) credential(c *fiber.Ctx) string {
	header := c.Get(a.Settings.KeyHeader)
	if header == "" || a.Settings.KeyPrefix == "" {
		return header
	}
	if prefix, rest, ok := strings.Cut(header, " "); ok && strings.EqualFold(prefix, a.Settings.KeyPrefix) {
		return strings.TrimSpace(rest)
	}
	return ""
}

// keyHash returns the hash of the API key that a request sends, or that its session was created with, and when that session ends.
// ends is zero without a session. A session is valid only in requests of the gateway's own page.
func (a *Authenticator) keyHash(c *fiber.Ctx) (hash [sha256.Size]byte, ends time.Time, ok bool) {
	if text := a.credential(c); text != "" {
		return sha256.Sum256([]byte(text)), ends, true
	}
	token := c.Cookies(cookieName)
	if token == "" || !isSameSite(c) {
		return hash, ends, false
	}
	secret, err := a.sessionSecret()
	if err != nil {
		c.Locals(sessionUnread, true)
		return hash, ends, false
	}
	hash, ends, err = session.Open(secret, token, time.Now())
	return hash, ends, err == nil
}

// Identify returns the caller of a request as far as the gateway knows it without a request to the API server. token is not
// empty if only the API server knows the caller; pass it to Admit.
func (a *Authenticator) Identify(c *fiber.Ctx) (who Caller, token string) {
	if hash, _, ok := a.keyHash(c); ok {
		// A session is for the page, which shows the whole installation. It cannot be limited to namespaces.
		if key, ok := a.keys.findHash(hash); ok && (key.namespaces == nil || a.credential(c) != "") {
			return Caller{Name: "key/" + key.name, Scopes: key.scopes, Namespaces: key.namespaces}, ""
		}
	}
	if text := a.credential(c); text != "" && a.Settings.TokenReview {
		return Caller{}, utils.CopyString(text)
	}
	if certificate := clientCertificate(c); certificate != nil {
		return Caller{Name: "certificate/" + certificate.Subject.CommonName, Scopes: a.certificateScopes}, ""
	}
	return Caller{}, ""
}

// StillAdmitted returns a function that reports whether the caller of an admitted request may still read the whole installation.
// A stream calls it while it is open, and ends with the session of its request. It holds the hash of a key, or the text of a token, which TokenReview needs. While the API
// server does not answer, its last answer is valid.
func (a *Authenticator) StillAdmitted(c *fiber.Ctx) func() bool {
	if !a.Settings.Enabled {
		return func() bool { return true }
	}
	if _, token := a.Identify(c); token != "" {
		return func() bool {
			who, err := a.review(token)
			return err != nil || who.Scopes.Has(ScopeRead) && !who.IsLimited()
		}
	}
	hash, ends, _ := a.keyHash(c)
	if _, ok := a.keys.findHash(hash); !ok && clientCertificate(c) != nil {
		// A certificate is valid as long as its connection.
		return func() bool { return true }
	}
	return func() bool {
		key, ok := a.keys.findHash(hash)
		hasEnded := !ends.IsZero() && !time.Now().Before(ends)
		return ok && !hasEnded && key.scopes.Has(ScopeRead) && key.namespaces == nil
	}
}

// clientCertificate returns the caller's verified certificate, or nil.
func clientCertificate(c *fiber.Ctx) *x509.Certificate {
	state := c.Context().TLSConnectionState()
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.PeerCertificates[0]
}

// isSameSite reports whether a request with a cookie comes from the gateway's own page. Browsers send Sec-Fetch-Site or Origin
// with every request that could change something.
func isSameSite(c *fiber.Ctx) bool {
	if method := c.Method(); method == fiber.MethodGet || method == fiber.MethodHead {
		return true
	}
	if site := c.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(c.Get(fiber.HeaderOrigin))
	return err == nil && origin.Host == string(c.Request().Host())
}
