package handlers

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/openapi"
	"github.com/vitistack/stack/gateway/internal/page"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// Description returns the handlers of the API's description, by their paths below the API.
func Description() map[string]fiber.Handler {
	static := func(contentType string, content []byte) fiber.Handler {
		return response.Static(contentType, func() ([]byte, error) { return content, nil }, page.Protect)
	}
	return map[string]fiber.Handler{
		"/openapi.json": response.Static(fiber.MIMEApplicationJSON, openapi.JSON, page.Protect),
		"/openapi.yaml": static("application/yaml", openapi.YAML()),
		"/docs":         static(fiber.MIMETextHTMLCharsetUTF8, openapi.HTML()),
		"/docs.css":     static("text/css; charset=utf-8", openapi.Style()),
	}
}

// Page serves the files of the status page.
type Page struct{ files map[string]fiber.Handler }

// NewPage loads the files. An error means that the build is incomplete.
func NewPage() (*Page, error) {
	files, err := page.Files()
	if err != nil {
		return nil, fmt.Errorf("load the status page: %w", err)
	}
	p := &Page{files: map[string]fiber.Handler{}}
	for _, f := range files {
		p.files[f.Name] = response.Static(f.ContentType, func() ([]byte, error) { return f.Content, nil }, page.Protect)
	}
	return p, nil
}

// Index serves the page.
func (p *Page) Index(c *fiber.Ctx) error { return p.serve(c, "index.html") }

// File serves the file that the parameter file names.
func (p *Page) File(c *fiber.Ctx) error { return p.serve(c, c.Params("file")) }

func (p *Page) serve(c *fiber.Ctx, name string) error {
	handle, ok := p.files[name]
	if !ok {
		return problem.New(http.StatusNotFound, "the status page has no such file")
	}
	return handle(c)
}

// versionJSON is the version of the gateway.
type versionJSON struct {
	// Version is the release, Revision the commit that it was built from, and API the version of the REST API.
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	API      string `json:"api"`
}

// Version returns the handler that serves the version of the gateway.
func Version(version string) fiber.Handler {
	out := versionJSON{Version: version, Go: runtime.Version(), API: strings.TrimPrefix(openapi.BasePath, "/api/")}
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, s := range built.Settings {
			if s.Key == "vcs.revision" {
				out.Revision = s.Value
			}
		}
	}
	return func(c *fiber.Ctx) error { return response.JSON(c, http.StatusOK, out) }
}
