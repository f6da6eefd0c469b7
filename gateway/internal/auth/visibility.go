package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// Visibility is the set of namespaces that a response may show. The zero value shows nothing.
type Visibility struct {
	// All shows every namespace and cluster-scoped objects.
	All        bool
	Namespaces []string
}

// Includes reports whether objects of a namespace are visible. Every response with objects depends on it. The namespace of
// cluster-scoped objects is empty; they belong to the whole installation.
func (v Visibility) Includes(namespace string) bool {
	return v.All || namespace != "" && slices.Contains(v.Namespaces, namespace)
}

// Digest identifies the namespaces in an entity tag.
func (v Visibility) Digest() string {
	sum := sha256.Sum256([]byte(strings.Join(v.Namespaces, ",")))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// decideVisibility returns what a caller may see. requested are the namespaces that the request names; granted are the namespaces
// in which the Kubernetes API lets the owner of a token read, where the empty name stands for all of them.
func decideVisibility(who Caller, requested []string, granted map[string]bool) Visibility {
	switch {
	case !who.IsLimited():
		return Visibility{All: true}
	case who.User == nil:
		return Visibility{Namespaces: who.Namespaces}
	case granted[""]:
		return Visibility{All: true}
	}
	v := Visibility{}
	for _, namespace := range requested {
		if namespace != "" && granted[namespace] && !slices.Contains(v.Namespaces, namespace) {
			v.Namespaces = append(v.Namespaces, namespace)
		}
	}
	slices.Sort(v.Namespaces)
	return v
}

// SenderVisibility returns the namespaces that a sender of events may send events about.
func SenderVisibility(who Caller) Visibility { return decideVisibility(who, nil, nil) }

// maxRequestedNamespaces bounds the namespaces of one request whose rights the API server reviews.
const maxRequestedNamespaces = 10

// VisibilityOf returns what the caller of a request may see of resources with a verb such as list. requested are the namespaces
// that the request names. A problem says why the request is refused.
func (a *Authenticator) VisibilityOf(c *fiber.Ctx, verb string, requested []string, resources []apiserver.Resource) (Visibility, error) {
	who := a.CallerOf(c)
	if who.User == nil {
		return decideVisibility(who, requested, nil), nil
	}
	if len(requested) > maxRequestedNamespaces {
		return Visibility{}, problem.Parameter("namespace", "it has %d namespaces: write at most %d", len(requested), maxRequestedNamespaces)
	}
	granted, err := a.reviewRights(*who.User, verb, requested, resources)
	if err != nil {
		a.Log.Warn("Cannot review access", "user", who.Name, "error", err.Error())
		return Visibility{}, problem.New(http.StatusServiceUnavailable, "the Kubernetes API does not say what %s may read: try again later, or use an API key", who.Name)
	}
	v := decideVisibility(who, requested, granted)
	if !v.All && len(requested) == 0 {
		return Visibility{}, problem.New(http.StatusForbidden, "%s may not %s %s in all namespaces: name those to read, as in ?namespace=team-a", who.Name, verb, namesOf(resources))
	}
	return v, nil
}

// RequireVisible refuses a caller that may not list the resources of a namespace.
func (a *Authenticator) RequireVisible(c *fiber.Ctx, namespace string, resources []apiserver.Resource) error {
	v, err := a.VisibilityOf(c, "list", []string{namespace}, resources)
	if err == nil && !v.Includes(namespace) {
		err = problem.New(http.StatusForbidden, "%s, and this shows %s of namespace %s", a.CallerOf(c).DescribeLimit(), namesOf(resources), namespace)
	}
	return err
}

func namesOf(resources []apiserver.Resource) string {
	names := make([]string, len(resources))
	for i, r := range resources {
		names[i] = r.Name
	}
	return strings.Join(names, ", ")
}

// reviewRights returns the requested namespaces in which a user may use a verb on all resources. The empty name stands for all
// namespaces; if the user has that right, no other is reviewed.
func (a *Authenticator) reviewRights(user apiserver.User, verb string, requested []string, resources []apiserver.Resource) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), a.Timeout)
	defer cancel()
	all := map[string]bool{}
	for _, namespace := range append([]string{""}, requested...) {
		granted := true
		for _, resource := range resources {
			if !granted {
				break
			}
			var err error
			if granted, err = a.hasRight(ctx, user, verb, resource, namespace); err != nil {
				return nil, err
			}
		}
		if all[namespace] = granted; all[""] {
			break
		}
	}
	return all, nil
}

// Times for which the result of a SubjectAccessReview is cached.
const (
	grantedRightTTL = 30 * time.Second
	deniedRightTTL  = 10 * time.Second
)

// hasRight reports whether a user may use a verb on a resource in a namespace, from the cache or from the API server.
func (a *Authenticator) hasRight(ctx context.Context, user apiserver.User, verb string, resource apiserver.Resource, namespace string) (bool, error) {
	right, err := json.Marshal([]any{user, verb, resource, namespace})
	if err != nil {
		return false, fmt.Errorf("encode a right of %s: %w", user.Name, err)
	}
	sum := sha256.Sum256(right)
	key := "right:" + base64.RawURLEncoding.EncodeToString(sum[:])
	if cached, ok := a.Cache.Get(ctx, key); ok {
		return string(cached) == "yes", nil
	}
	allowed, err := a.API.MayUse(ctx, user, verb, resource, namespace)
	if err != nil {
		return false, err
	}
	cached, ttl := "no", deniedRightTTL
	if allowed {
		cached, ttl = "yes", grantedRightTTL
	}
	a.Cache.Set(ctx, key, []byte(cached), min(ttl, a.CacheTTL))
	return allowed, nil
}
