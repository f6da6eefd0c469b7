package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/vitistack/stack/gateway/internal/openapi"
)

// contract is the description of the API, ready to check responses against it.
var contract = sync.OnceValues(func() (routers.Router, error) { return newContract(false) })

// reducedContract is contract for requests with the parameter fields, whose items lack required fields.
var reducedContract = sync.OnceValues(func() (routers.Router, error) { return newContract(true) })

func newContract(reduced bool) (routers.Router, error) {
	encoded, err := openapi.JSON()
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(encoded)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	for _, schema := range doc.Components.Schemas {
		if reduced {
			schema.Value.Required = nil
		}
	}
	registerDecoders()
	return gorillamux.NewRouter(doc)
}

var registerDecoders = sync.OnceFunc(func() {
	openapi3filter.RegisterBodyDecoder("application/cloudevents+json", openapi3filter.RegisteredBodyDecoder("application/json"))
	for _, text := range []string{"text/html", "text/css", "text/javascript", "text/event-stream", "application/yaml", "image/svg+xml"} {
		openapi3filter.RegisterBodyDecoder(text, openapi3filter.FileBodyDecoder)
	}
})

// checkContract fails t where a response is not what the description says. Every
// response of every test passes through here.
func checkContract(t testing.TB, req *http.Request, r reply) {
	t.Helper()
	described := contract
	if req.URL.Query().Has("fields") {
		described = reducedContract
	}
	router, err := described()
	if err != nil {
		t.Fatalf("the description of the API: %v", err)
	}
	route, path, err := router.FindRoute(req)
	if errors.Is(err, routers.ErrPathNotFound) || errors.Is(err, routers.ErrMethodNotAllowed) {
		if r.StatusCode < 400 && req.Method != http.MethodOptions {
			t.Errorf("%s %s answers %s, and is not described", req.Method, req.URL.Path, r.Status)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	body := r.body
	if r.Header.Get("Content-Encoding") != "" || r.StatusCode == http.StatusNotModified {
		body = nil
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, Route: route, PathParams: path},
		Status:                 r.StatusCode, Header: r.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: body == nil},
	}
	if err := openapi3filter.ValidateResponse(context.Background(), input); err != nil {
		t.Errorf("%s %s answers %s with a body that is not as described: %v\n%s", req.Method, req.URL.Path, r.Status, err, r.body)
	}
	if r.StatusCode >= 400 && r.Header.Get("Content-Type") != "application/problem+json" && !strings.Contains(req.URL.Path, "health") && !strings.Contains(req.URL.Path, "ready") {
		t.Errorf("%s %s answers %s as %s, not as a problem", req.Method, req.URL.Path, r.Status, r.Header.Get("Content-Type"))
	}
}

// TestEveryRouteIsDescribed holds routes and description against each other.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	encoded, err := openapi.JSON()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(encoded)
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described[method+" "+path] = true
		}
	}
	s := start(t)
	callers, broker, err := s.app.routes()
	if err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`:(\w+)`)
	for _, r := range append(callers, broker...) {
		route := r.Method + " " + parameter.ReplaceAllString(r.Path, "{$1}")
		if !described[route] {
			t.Errorf("%s is served and not described", route)
		}
		delete(described, route)
	}
	for route := range described {
		t.Errorf("%s is described and not served", route)
	}
}

func TestDocumentation(t *testing.T) {
	t.Parallel()
	s := start(t)
	r := s.get("/api/v1/docs")
	for _, part := range []string{"Content-Security-Policy", "X-Frame-Options"} {
		if r.Header.Get(part) == "" {
			t.Errorf("the page lacks the header %s", part)
		}
	}
	for _, part := range []string{"/api/v1/clusters/{id}/timeline", "Standard Webhooks", `href="#schema-Problem"`, "kubeVirt"} {
		if !strings.Contains(string(r.body), part) {
			t.Errorf("the page lacks %s", part)
		}
	}
	if strings.Contains(string(r.body), "https://") || strings.Contains(string(r.body), "http://") {
		t.Error("the page needs something from elsewhere")
	}
	if s.get("/api/v1/openapi.json").object(t)["openapi"] != "3.1.0" {
		t.Error("openapi.json is no OpenAPI 3.1")
	}
	if !strings.HasPrefix(string(s.get("/api/v1/openapi.yaml").body), "openapi: 3.1.0") {
		t.Error("openapi.yaml is no OpenAPI 3.1")
	}
}
