package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/vitistack/stack/gateway/internal/openapi"
)

// Times for which the result of a TokenReview is cached.
const (
	validTokenTTL   = time.Minute
	invalidTokenTTL = 10 * time.Second
)

// review returns the owner of a token, from the cache or from the API server. The name is empty for an invalid token.
func (a *Authenticator) review(token string) (Caller, error) {
	ctx, cancel := context.WithTimeout(context.Background(), a.Timeout)
	defer cancel()
	sum := sha256.Sum256([]byte(token))
	key := "caller:" + base64.RawURLEncoding.EncodeToString(sum[:])
	if cached, ok := a.Cache.Get(ctx, key); ok {
		var who Caller
		if err := json.Unmarshal(cached, &who); err == nil {
			return who, nil
		}
	}
	who, err := a.reviewToken(ctx, token)
	if err != nil {
		return Caller{}, err
	}
	ttl := invalidTokenTTL
	if who.Name != "" {
		ttl = min(validTokenTTL, a.CacheTTL)
	}
	if encoded, err := json.Marshal(who); err == nil {
		a.Cache.Set(ctx, key, encoded, ttl)
	}
	return who, nil
}

// rightsPath is the nonResourceURL that ClusterRoles grant. It differs from the path that the API is served at, because every
// user may get all paths below /api of the API server.
const rightsPath = "/vitistack" + openapi.BasePath

// reviewToken asks the API server for the owner of a token and for the owner's rights. An owner without the right to read the
// whole installation reads by namespace.
func (a *Authenticator) reviewToken(ctx context.Context, token string) (Caller, error) {
	user, ok, err := a.API.Authenticate(ctx, token)
	if err != nil || !ok {
		return Caller{}, err
	}
	who := Caller{Name: "user/" + user.Name}
	for _, right := range []struct {
		verb, path string
		scope      Scopes
	}{{"get", rightsPath, ScopeRead}, {"post", rightsPath, ScopeWrite}, {"post", rightsPath + "/events", ScopeEvents}} {
		allowed, err := a.API.Allowed(ctx, user, right.verb, right.path)
		if err != nil {
			return Caller{}, err
		}
		if allowed {
			who.Scopes |= right.scope
		}
	}
	if !who.Scopes.Has(ScopeRead) {
		who.Scopes |= ScopeRead
		who.User = &user
	}
	return who, nil
}
