package auth

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/openapi"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// Requirement is what a route requires of its callers.
type Requirement struct {
	// Scope is what a caller must be allowed to do. 0 admits every caller.
	Scope Scopes
	// ByNamespace declares that the handler shows a limited caller only its namespaces. Other routes refuse limited callers.
	ByNamespace bool
	// Always requires the scope also if auth.enabled is off.
	Always bool
	// Metrics declares that the response names all namespaces. The route requires ScopeRead once a key is limited to namespaces.
	Metrics bool
}

// scope returns the scope that a caller needs at present.
func (a *Authenticator) scope(r Requirement) Scopes {
	if r.Metrics && a.keys.hasLimited() {
		return ScopeRead
	}
	return r.Scope
}

// IsRequired reports whether a route needs an authenticated caller at present.
func (a *Authenticator) IsRequired(r Requirement) bool {
	return (a.Settings.Enabled || r.Always) && a.scope(r) != 0
}

// Admit checks the caller and token that Identify returned against a requirement, and keeps the caller for CallerOf. A problem
// says why the request is refused. Call it after the rate limit, because it may send requests to the API server.
func (a *Authenticator) Admit(c *fiber.Ctx, who Caller, token string, r Requirement) error {
	if token != "" {
		var err error
		if who, err = a.review(token); err != nil {
			a.Log.Warn("Cannot review a token", "error", err.Error())
			return problem.New(http.StatusServiceUnavailable, "the Kubernetes API does not say who the token belongs to: try again later, or use an API key")
		}
	}
	if who.Name == "" {
		if err := unreadSession(c); err != nil {
			return err
		}
		a.challenge(c)
		return problem.New(http.StatusUnauthorized, "a key is needed: send it as %s: %s", a.Settings.KeyHeader, strings.TrimSpace(a.Settings.KeyPrefix+" KEY"))
	}
	if scope := a.scope(r); !who.Scopes.Has(scope) {
		return problem.New(http.StatusForbidden, "%s may %s, and this needs %s", who.Name, strings.Join(who.Scopes.Names(), ", "), strings.Join(scope.Names(), ", "))
	}
	if who.IsLimited() && !r.ByNamespace {
		const base = openapi.BasePath
		return problem.New(http.StatusForbidden, "%s, and this shows the whole installation: use %s/clusters, %s/machines or %s/events, or a key without namespaces", who.DescribeLimit(), base, base, base)
	}
	c.Locals(callerKey, who)
	return nil
}

// AdmitSender returns the caller of a request that sends events. It refuses a caller without ScopeEvents. Rights of a token in
// namespaces do not limit its events.
func (a *Authenticator) AdmitSender(c *fiber.Ctx) (Caller, error) {
	who, token := a.Identify(c)
	if token != "" {
		var err error
		if who, err = a.review(token); err != nil {
			return Caller{}, problem.New(http.StatusServiceUnavailable, "the Kubernetes API does not say who the token belongs to: try again later")
		}
	}
	switch {
	case who.Scopes.Has(ScopeEvents):
		who.User = nil
		return who, nil
	case who.Name != "":
		return Caller{}, problem.New(http.StatusForbidden, "%s may not send events: its key needs the scope events", who.Name)
	}
	a.challenge(c)
	return Caller{}, problem.New(http.StatusUnauthorized, "send a key with the scope events, or sign the request as Standard Webhooks do: webhook-id, webhook-timestamp and webhook-signature")
}

// challenge sets WWW-Authenticate. A challenge begins with a scheme, also if keys have no prefix.
func (a *Authenticator) challenge(c *fiber.Ctx) {
	c.Set(fiber.HeaderWWWAuthenticate, cmp.Or(a.Settings.KeyPrefix, "ApiKey")+` realm="vitistack"`)
}
