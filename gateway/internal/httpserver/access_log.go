package httpserver

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/events/standardwebhooks"
)

// logReceived writes a line for a request that begins, at level debug.
func (s *Server) logReceived(c *fiber.Ctx, id string) {
	if s.Log.Enabled(c.Context(), slog.LevelDebug) && !isExcluded(s.Logging.ExcludePaths, c.Path()) {
		s.Log.LogAttrs(c.Context(), slog.LevelDebug, "Received request", slog.String("requestId", id),
			slog.String("method", c.Method()), slog.String("path", c.Path()))
	}
}

// logAccess writes a request's line into the access log.
func (s *Server) logAccess(c *fiber.Ctx, id string, took time.Duration) {
	path := c.Path()
	if !s.Logging.Enabled || isExcluded(s.Logging.ExcludePaths, path) {
		return
	}
	status := c.Response().StatusCode()
	level, message := slog.LevelInfo, "Request completed successfully"
	switch {
	case status >= fiber.StatusInternalServerError:
		level, message = slog.LevelError, "Request failed"
	case status >= fiber.StatusBadRequest:
		level, message = slog.LevelWarn, "Request refused"
	}
	attrs := []slog.Attr{
		slog.String("requestId", id),
		slog.String("method", c.Method()),
		slog.String("path", path),
		slog.Int("statusCode", status),
		slog.String("duration", took.Round(time.Microsecond).String()),
		slog.String("userAgent", c.Get(fiber.HeaderUserAgent)),
	}
	if s.Logging.IncludeHeaders {
		attrs = append(attrs, slog.Any("headers", redactedHeaders(c, s.Auth.Settings.KeyHeader)))
	}
	s.Log.LogAttrs(c.Context(), level, message, attrs...)
}

// isExcluded reports whether path is one of paths, or below one of them.
func isExcluded(paths []string, path string) bool {
	for _, p := range paths {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// redactedHeaders returns the headers of a request without credentials. keyHeader is the header of API keys.
func redactedHeaders(c *fiber.Ctx, keyHeader string) map[string]string {
	secret := []string{fiber.HeaderAuthorization, fiber.HeaderCookie, fiber.HeaderProxyAuthorization, standardwebhooks.HeaderSignature, keyHeader}
	headers := map[string]string{}
	c.Request().Header.VisitAll(func(name, value []byte) {
		n := string(name)
		headers[n] = string(value)
		if slices.ContainsFunc(secret, func(s string) bool { return strings.EqualFold(s, n) }) {
			headers[n] = "(redacted)"
		}
	})
	return headers
}
