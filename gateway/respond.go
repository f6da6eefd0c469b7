package main

import (
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// coding is how a body is compressed, and the suffix of its entity tag.
type coding struct{ name, suffix string }

var (
	codingPlain = coding{}
	codingGzip  = coding{"gzip", "-gz"}
	codingZstd  = coding{"zstd", "-zs"}
)

// accepted picks the best coding that an Accept-Encoding header allows.
func accepted(header string) coding {
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

// sendBody writes a body, unless the caller knows it already. tag is its entity tag
// without the quotes and without the suffix of a coding.
func sendBody(c *fiber.Ctx, tag, contentType string, b inventory.Body) error {
	h := &c.Context().Response.Header
	h.Add(fiber.HeaderVary, "Accept-Encoding")
	h.Set(fiber.HeaderCacheControl, "no-cache")
	how, bytes := accepted(c.Get(fiber.HeaderAcceptEncoding)), b.Plain
	switch {
	case how == codingZstd && b.Zstd != nil:
		bytes = b.Zstd
	case how != codingPlain && b.Gzip != nil:
		how, bytes = codingGzip, b.Gzip
	default:
		how = codingPlain
	}
	h.Set(fiber.HeaderETag, quoted(tag, how.suffix))
	if known := c.Get(fiber.HeaderIfNoneMatch); known != "" && matches(known, tag) {
		c.Status(fiber.StatusNotModified)
		return nil
	}
	if how != codingPlain {
		h.Set(fiber.HeaderContentEncoding, how.name)
	}
	h.SetContentType(contentType)
	c.Context().Response.SetBodyRaw(bytes)
	return nil
}

func quoted(tag, suffix string) string { return `"` + tag + suffix + `"` }

// matches tells whether an If-None-Match header names the tag, in any coding.
func matches(header, tag string) bool {
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
