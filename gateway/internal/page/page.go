// Package page is the status page: plain files that are part of the binary.
package page

import (
	"embed"
	"path"

	"github.com/gofiber/fiber/v2"
)

//go:generate go run ./generate

//go:embed *.html *.css *.js *.svg
var files embed.FS

// policy lets a page load what comes from the gateway itself, and nothing else.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"

var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// File is a file of the page.
type File struct {
	Name        string
	Content     []byte
	ContentType string
}

// Files are all files of the page, in the order of their names.
func Files() ([]File, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	all := make([]File, 0, len(entries))
	for _, entry := range entries {
		content, err := files.ReadFile(entry.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, File{Name: entry.Name(), Content: content, ContentType: contentTypes[path.Ext(entry.Name())]})
	}
	return all, nil
}

// Protect sets the headers that keep the page to itself.
func Protect(c *fiber.Ctx) {
	h := &c.Context().Response.Header
	h.Set(fiber.HeaderContentSecurityPolicy, policy)
	h.Set(fiber.HeaderReferrerPolicy, "no-referrer")
	h.Set(fiber.HeaderXFrameOptions, "DENY")
}
