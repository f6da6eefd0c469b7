package main

import (
	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/openapi"
	"github.com/vitistack/stack/gateway/internal/page"
	"github.com/vitistack/stack/gateway/internal/response"
)

// aboutEndpoints show the description of the API. It is made at the first request
// that asks for it.
func aboutEndpoints() []endpoint {
	plain := func(content []byte) func() ([]byte, error) {
		return func() ([]byte, error) { return content, nil }
	}
	return []endpoint{
		open(base+"/openapi.json", response.Static(fiber.MIMEApplicationJSON, openapi.JSON, page.Protect)),
		open(base+"/openapi.yaml", response.Static("application/yaml", plain(openapi.YAML()), page.Protect)),
		open(base+"/docs", response.Static(fiber.MIMETextHTMLCharsetUTF8, plain(openapi.HTML()), page.Protect)),
		open(base+"/docs.css", response.Static("text/css; charset=utf-8", plain(openapi.Style()), page.Protect)),
	}
}
