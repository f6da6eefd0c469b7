// Package response writes bodies as responses: with a strong ETag in the coding that the client accepts, or encoded for one request.
package response

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/httpbody"
)

// coding is a Content-Encoding and the suffix that it adds to an entity tag.
type coding struct{ name, suffix string }

var (
	codingPlain = coding{}
	codingGzip  = coding{"gzip", "-gz"}
	codingZstd  = coding{"zstd", "-zs"}
)

// acceptedCoding returns the best coding that an Accept-Encoding header allows.
func acceptedCoding(header string) coding {
	best, bestQuality := codingPlain, 0.0
	for part := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(part), ";")
		quality := 1.0
		if q, ok := strings.CutPrefix(strings.TrimSpace(parameters), "q="); ok {
			parsed, err := strconv.ParseFloat(q, 64)
			if err != nil {
				continue
			}
			quality = parsed
		}
		var c coding
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "gzip", "x-gzip", "*":
			c = codingGzip
		case "zstd":
			c = codingZstd
		default:
			continue
		}
		if quality > bestQuality || (quality == bestQuality && quality > 0 && c == codingZstd) {
			best, bestQuality = c, quality
		}
	}
	return best
}

// Send writes a body, or 304 if the request's If-None-Match names it. tag is the entity tag without quotes and without the
// suffix of a coding.
func Send(c *fiber.Ctx, tag, contentType string, b httpbody.Body) error {
	h := &c.Context().Response.Header
	h.Add(fiber.HeaderVary, "Accept-Encoding")
	h.Set(fiber.HeaderCacheControl, "no-cache")
	used, bytes := acceptedCoding(c.Get(fiber.HeaderAcceptEncoding)), b.Plain
	switch {
	case used == codingZstd && b.Zstd != nil:
		bytes = b.Zstd
	case used != codingPlain && b.Gzip != nil:
		used, bytes = codingGzip, b.Gzip
	default:
		used = codingPlain
	}
	h.Set(fiber.HeaderETag, `"`+tag+used.suffix+`"`)
	if known := c.Get(fiber.HeaderIfNoneMatch); known != "" && matchesTag(known, tag) {
		c.Status(fiber.StatusNotModified)
		return nil
	}
	if used != codingPlain {
		h.Set(fiber.HeaderContentEncoding, used.name)
	}
	h.SetContentType(contentType)
	c.Context().Response.SetBodyRaw(bytes)
	return nil
}

// matchesTag reports whether an If-None-Match header names the tag in any coding.
func matchesTag(header, tag string) bool {
	if strings.TrimSpace(header) == "*" {
		return true
	}
	for part := range strings.SplitSeq(header, ",") {
		known := strings.Trim(strings.TrimPrefix(strings.TrimSpace(part), "W/"), `"`)
		for _, c := range []coding{codingPlain, codingGzip, codingZstd} {
			if rest, ok := strings.CutSuffix(known, c.suffix); ok && rest == tag {
				return true
			}
		}
	}
	return false
}

// JSON encodes v as the response to one request.
func JSON(c *fiber.Ctx, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return Encoded{Status: status, Body: body}.Send(c)
}

// Encoded is a response in JSON that was encoded before it is requested.
type Encoded struct {
	Status int
	Body   []byte
}

// Encode encodes v. A value that JSON cannot encode becomes an empty object with status 500.
func Encode(status int, v any) Encoded {
	body, err := json.Marshal(v)
	if err != nil {
		return Encoded{Status: http.StatusInternalServerError, Body: []byte(`{}`)}
	}
	return Encoded{Status: status, Body: body}
}

// Send writes the response. Caches do not store it.
func (e Encoded) Send(c *fiber.Ctx) error {
	h := &c.Context().Response.Header
	h.Set(fiber.HeaderCacheControl, "no-store")
	h.SetContentType(fiber.MIMEApplicationJSON)
	c.Status(e.Status)
	c.Context().Response.SetBodyRaw(e.Body)
	return nil
}

// Static returns a handler for content that never changes. It loads and compresses the content at the first request; headers
// sets further headers of each response.
func Static(contentType string, load func() ([]byte, error), headers func(*fiber.Ctx)) fiber.Handler {
	type tagged struct {
		body httpbody.Body
		tag  string
	}
	once := sync.OnceValues(func() (tagged, error) {
		content, err := load()
		if err != nil {
			return tagged{}, err
		}
		sum := sha256.Sum256(content)
		return tagged{body: httpbody.New(content), tag: hex.EncodeToString(sum[:8])}, nil
	})
	return func(c *fiber.Ctx) error {
		t, err := once()
		if err != nil {
			return err
		}
		headers(c)
		return Send(c, t.tag, contentType, t.body)
	}
}
