package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// allowOrigin tells a browser that a page of another origin may read the
// response.
func (g *gateway) allowOrigin(c *fiber.Ctx) {
	o := &g.config.CORS
	origin := c.Get(fiber.HeaderOrigin)
	if !o.Enabled {
		return
	}
	h := &c.Context().Response.Header
	allowed := "*"
	if !slices.Contains(o.AllowedOrigins, allowed) {
		// A cache must not give one origin the answer for another, or for none.
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

// preflight answers a browser that asks what a page of another origin may do.
func (g *gateway) preflight(c *fiber.Ctx) error {
	o := &g.config.CORS
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
