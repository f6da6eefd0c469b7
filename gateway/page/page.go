// Package page is the status page: plain files that are part of the binary.
package page

import (
	"embed"
	"path"

	"github.com/gofiber/fiber/v2"
)

//go:embed index.html app.css app.js
var files embed.FS

// policy lets a page load what comes from the gateway itself, and nothing else.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
}

// File is a file of the page.
type File struct {
	Content     []byte
	ContentType string
}

// Load reads a file of the page. A file that is not part of it is an error.
func Load(name string) (File, error) {
	content, err := files.ReadFile(name)
	if err != nil {
		return File{}, err
	}
	return File{Content: content, ContentType: contentTypes[path.Ext(name)]}, nil
}

// Protect sets the headers that keep the page to itself.
func Protect(c *fiber.Ctx) {
	h := &c.Context().Response.Header
	h.Set(fiber.HeaderContentSecurityPolicy, policy)
	h.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	h.Set(fiber.HeaderXFrameOptions, "DENY")
}
