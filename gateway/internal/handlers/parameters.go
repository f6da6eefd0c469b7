package handlers

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/listing"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// defaultLimit is the number of events of a page for a query without a limit.
const defaultLimit = 100

// parameters are the query parameters of a request. Every parameter must be read, see rest.
type parameters struct {
	values url.Values
	known  []string
}

func parametersOf(c *fiber.Ctx) (*parameters, error) {
	values, err := url.ParseQuery(utils.CopyString(string(c.Request().URI().QueryString())))
	if err != nil {
		return nil, problem.New(http.StatusBadRequest, "the query cannot be read: write name=value pairs with & between")
	}
	return &parameters{values: values}, nil
}

func (p *parameters) get(name string) string {
	p.known = append(p.known, name)
	return p.values.Get(name)
}

// rest returns a problem if the request has parameters that were not read, and are therefore unknown.
func (p *parameters) rest() error {
	for _, name := range p.known {
		p.values.Del(name)
	}
	for name := range p.values {
		return problem.Parameter(name, "it is unknown here: write %s", strings.Join(p.known, ", "))
	}
	return nil
}

// page reads limit and continue.
func (p *parameters) page() (limit int, before int64, err error) {
	limit = defaultLimit
	if text := p.get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > listing.MaxLimit {
			return 0, 0, problem.Parameter("limit", "write a number from 1 to %d", listing.MaxLimit)
		}
	}
	if text := p.get("continue"); text != "" {
		if before, err = strconv.ParseInt(text, 36, 64); err != nil || before < 1 {
			return 0, 0, problem.Parameter("continue", "it is not a value that the gateway has returned: leave it out to start from the beginning")
		}
	}
	return limit, before, nil
}

// timeParameter reads a time in a query.
func timeParameter(name, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, problem.Parameter(name, "write a time such as 2026-01-02T15:04:05Z")
	}
	return t, nil
}
