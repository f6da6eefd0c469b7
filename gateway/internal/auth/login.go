package auth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/openapi"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
	"github.com/vitistack/stack/gateway/internal/session"
)

// cookieName is the name of the cookie that holds a browser's session.
const cookieName = "vitistack_session"

// sessionPurpose separates the secret that seals sessions from other derived secrets.
const sessionPurpose = "browser sessions"

// sessionSecret returns the secret that seals sessions in all replicas.
func (a *Authenticator) sessionSecret() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), a.Timeout)
	defer cancel()
	return a.DeriveKey(ctx, sessionPurpose, session.KeySize)
}

// sessionUnread is the key in a request's locals that says that the session of the request could not be read.
const sessionUnread = "session unread"

// unreadSession returns the problem of a request whose session could not be read, or nil. A session may be valid while the signing key cannot be
// read, as after a restart of the gateway without the API server, so a browser must not take the request for one without a session.
func unreadSession(c *fiber.Ctx) error {
	if c.Locals(sessionUnread) == nil {
		return nil
	}
	return problem.New(http.StatusServiceUnavailable, "the session cannot be read now, since the Kubernetes API does not answer: try again in a moment").WithRetryAfter(5)
}

// sessionJSON describes a browser's session.
type sessionJSON struct {
	// Required reports whether requests need a key.
	Required bool     `json:"required"`
	Name     string   `json:"name,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
}

// ShowSession serves the session of a browser, so that the page knows whether to ask for a key.
func (a *Authenticator) ShowSession(c *fiber.Ctx) error {
	out := sessionJSON{Required: a.Settings.Enabled}
	who, token := a.Identify(c)
	if token != "" {
		who, _ = a.review(token)
	}
	if err := unreadSession(c); err != nil && a.Settings.Enabled && who.Name == "" {
		return err
	}
	out.Name, out.Scopes = who.Name, who.Scopes.Names()
	return response.JSON(c, http.StatusOK, out)
}

// BeginSession creates a session for the key in the body, in a cookie that scripts and other sites cannot use. The session ends
// with the key, after session.Lifetime, or with the gateway's signing key.
func (a *Authenticator) BeginSession(c *fiber.Ctx) error {
	var in struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(c.Request().Body(), &in); err != nil || in.Key == "" {
		return problem.New(http.StatusBadRequest, `write {"key":"..."}`)
	}
	key, ok := a.keys.find(in.Key)
	if !ok {
		return problem.New(http.StatusUnauthorized, "the key is not valid")
	}
	if key.namespaces != nil {
		return problem.New(http.StatusForbidden, "the key is limited to the namespaces %s, but the page shows the whole installation: use the key with the REST API, such as %s/clusters, or log in with a key without namespaces", strings.Join(key.namespaces, ", "), openapi.BasePath)
	}
	if a.Settings.Enabled && !key.scopes.Has(ScopeRead) {
		return problem.New(http.StatusForbidden, "the key has no scope but %s, and the page needs read: log in with a key of gateway hash-key NAME read+write, or add read to the scopes of this one", strings.Join(key.scopes.Names(), " and "))
	}
	secret, err := a.sessionSecret()
	if err != nil {
		a.Log.Warn("Cannot begin a session", "error", err.Error())
		return problem.New(http.StatusServiceUnavailable, "no session can be begun now, since the Kubernetes API does not answer: try again later, or send the key with each request")
	}
	token, err := session.Seal(secret, sha256.Sum256([]byte(in.Key)), time.Now())
	if err != nil {
		return err
	}
	a.setCookie(c, token, 0)
	c.Status(http.StatusNoContent)
	return nil
}

// EndSession deletes the cookie of a session.
func (a *Authenticator) EndSession(c *fiber.Ctx) error {
	a.setCookie(c, "", -1)
	c.Status(http.StatusNoContent)
	return nil
}

func (a *Authenticator) setCookie(c *fiber.Ctx, value string, age int) {
	c.Cookie(&fiber.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: age, HTTPOnly: true, SessionOnly: age == 0,
		Secure: a.SecureCookies || c.Protocol() == "https", SameSite: fiber.CookieSameSiteStrictMode,
	})
}
