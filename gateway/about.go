package main

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/openapi"
	"github.com/vitistack/stack/gateway/internal/page"
)

// aboutEndpoints show the description of the API. It is made at the first request
// that asks for it.
func aboutEndpoints() []endpoint {
	plain := func(content []byte) func() ([]byte, error) {
		return func() ([]byte, error) { return content, nil }
	}
	return []endpoint{
		open(base+"/openapi.json", made(fiber.MIMEApplicationJSON, openapi.JSON)),
		open(base+"/openapi.yaml", made("application/yaml", plain(openapi.YAML()))),
		open(base+"/docs", made(fiber.MIMETextHTMLCharsetUTF8, plain(openapi.HTML()))),
		open(base+"/docs.css", made("text/css; charset=utf-8", plain(openapi.Style()))),
	}
}

type madeBody struct {
	body inventory.Body
	tag  string
}

// made serves something that never changes.
func made(contentType string, make func() ([]byte, error)) fiber.Handler {
	once := sync.OnceValues(func() (madeBody, error) {
		content, err := make()
		if err != nil {
			return madeBody{}, err
		}
		sum := sha256.Sum256(content)
		return madeBody{body: inventory.NewBody(content), tag: hex.EncodeToString(sum[:8])}, nil
	})
	return func(c *fiber.Ctx) error {
		m, err := once()
		if err != nil {
			return err
		}
		page.Protect(c)
		return sendBody(c, m.tag, contentType, m.body)
	}
}
