package auth

import (
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/apiserver"
)

// Caller is the authenticated sender of a request. The zero value is an anonymous caller. Its JSON form is cached.
type Caller struct {
	Name   string `json:"name"`
	Scopes Scopes `json:"scopes"`
	// Namespaces are the namespaces that an API key is limited to, or nil.
	Namespaces []string `json:"namespaces"`
	// User is the owner of a token who reads with rights in namespaces, or nil.
	User *apiserver.User `json:"user,omitempty"`
}

// IsLimited reports whether a caller may read only some namespaces: with an API key that has namespaces, or with a token whose
// owner may not read the whole installation.
func (w Caller) IsLimited() bool { return w.Namespaces != nil || w.User != nil }

// DescribeLimit describes what limits a caller, as the beginning of a message to the caller.
func (w Caller) DescribeLimit() string {
	if w.User != nil {
		return w.Name + " reads by namespace, with its rights in the Kubernetes API"
	}
	return w.Name + " reads the namespaces " + strings.Join(w.Namespaces, ", ") + " alone"
}

// callerKey is the key of the caller in a request's locals.
const callerKey = "caller"

// CallerOf returns the caller of an admitted request. A request without an admitted caller sees nothing.
func (a *Authenticator) CallerOf(c *fiber.Ctx) Caller {
	if !a.Settings.Enabled {
		return Caller{}
	}
	if who, ok := c.Locals(callerKey).(Caller); ok {
		return who
	}
	return Caller{Name: "unknown", Namespaces: []string{}}
}
