package httpserver

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// allowOrigin sets the headers that let a page of another origin read the response. Fiber's middleware cors is not used, because it
// sets no Vary for an origin that is not allowed, and passes an OPTIONS without an Origin on.
func (s *Server) allowOrigin(c *fiber.Ctx) {
	o := &s.CORS
	origin := c.Get(fiber.HeaderOrigin)
	if !o.Enabled {
		return
	}
	h := &c.Context().Response.Header
	allowed := "*"
	if !slices.Contains(o.AllowedOrigins, allowed) {
		// A cache must not serve the response for one origin to another.
		h.Add(fiber.HeaderVary, fiber.HeaderOrigin)
		if !slices.ContainsFunc(o.AllowedOrigins, func(a string) bool { return strings.EqualFold(a, origin) }) {
			return
		}
		allowed = origin
	}
	if origin == "" {
		return
	}
	h.Set(fiber.HeaderAccessControlAllowOrigin, allowed)
	h.Set(fiber.HeaderAccessControlExposeHeaders, strings.Join(o.ExposedHeaders, ", "))
}

// preflight answers the OPTIONS request that a browser sends before a request of another origin.
func (s *Server) preflight(c *fiber.Ctx) error {
	o := &s.CORS
	h := &c.Context().Response.Header
	h.Set(fiber.HeaderAllow, strings.Join(o.AllowedMethods, ", ")+", HEAD, OPTIONS")
	if o.Enabled && len(h.Peek(fiber.HeaderAccessControlAllowOrigin)) > 0 {
		h.Add(fiber.HeaderVary, "Access-Control-Request-Method, Access-Control-Request-Headers")
		h.Set(fiber.HeaderAccessControlAllowMethods, strings.Join(o.AllowedMethods, ", "))
		h.Set(fiber.HeaderAccessControlAllowHeaders, strings.Join(o.AllowedHeaders, ", "))
		h.Set(fiber.HeaderAccessControlMaxAge, strconv.Itoa(o.MaxAge))
	}
	return c.SendStatus(fiber.StatusNoContent)
}
