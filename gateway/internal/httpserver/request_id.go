package httpserver

import (
	"crypto/rand"
	"strings"

	"github.com/gofiber/fiber/v2/utils"
)

// requestID returns the identifier that the caller gave a request if it is valid, or a new one. Fiber's middleware requestid
// accepts any text, which would let callers write into the log.
func requestID(given string) string {
	if isRequestID(given) {
		return utils.CopyString(given)
	}
	return newRequestID()
}

// newRequestID returns a random identifier, which does not reveal the number of requests.
func newRequestID() string {
	return "req-" + strings.ToLower(rand.Text()[:16])
}

func isRequestID(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
