// Package wire is the functions' way to the HTTP APIs of other systems: one
// request at a time, with a deadline, a bound on the answer, and errors whose
// texts do not vary, so that they can stand in a condition. It never tries again;
// the broker does that.
package wire

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/events/outbound"
)

const (
	defaultTimeout = 10 * time.Second
	defaultMaxBody = 4 << 20
	// maxErrorBody is how much is kept of an answer that is an error.
	maxErrorBody = 16 << 10
)

// Config says how to reach one server.
type Config struct {
	// URL is where the API begins, for example https://nam.example.com/v1. It has
	// no credentials in it.
	URL string
	// Timeout is for one request, from connecting to the last byte of the answer.
	// 0 means 10 s.
	Timeout time.Duration
	TLS     TLS
	// Username and Password are sent with each request, or else Token is, as a
	// bearer token, or after another TokenScheme.
	Username, Password string
	Token, TokenScheme string
	// DisableKeepAlives makes a new connection for each request.
	DisableKeepAlives bool
	// MaxBody is the largest answer that is read, in bytes. 0 means 4 MiB.
	MaxBody int64
	// UserAgent names the function in the server's logs.
	UserAgent string
	// Outbound says who may be connected to.
	Outbound outbound.Rules
}

// Client talks to one server. It keeps nothing but idle connections, and may be
// used by many at once.
type Client struct {
	base   *url.URL
	config Config
	http   *http.Client
}

// New makes a client, and connects to nothing yet. It returns an error that says
// what to write where config cannot be used.
func New(config Config) (*Client, error) {
	base, err := url.Parse(config.URL)
	switch {
	case err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https"):
		return nil, fmt.Errorf("read the URL of a server: write scheme and host, for example https://api.example.com:8443")
	case base.User != nil:
		return nil, fmt.Errorf("read the URL of %s: credentials do not belong into a URL: set them beside it", base.Host)
	}
	tlsConfig, err := config.TLS.Config()
	if err != nil {
		return nil, fmt.Errorf("set up TLS for %s: %w", base.Host, err)
	}
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	config.MaxBody = cmp.Or(config.MaxBody, defaultMaxBody)
	base.RawQuery, base.Fragment = "", ""
	base.Path = strings.TrimRight(base.Path, "/")
	transport := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		DialContext:       config.Outbound.DialContext,
		TLSClientConfig:   tlsConfig,
		DisableKeepAlives: config.DisableKeepAlives,
		IdleConnTimeout:   30 * time.Second,
		ForceAttemptHTTP2: true,
	}
	return &Client{base: base, config: config, http: &http.Client{
		Transport:     transport,
		CheckRedirect: outbound.Stay,
	}}, nil
}

// Host is the server's name without its port.
func (c *Client) Host() string { return c.base.Hostname() }

// Request is one call of an API.
type Request struct {
	Method string
	// Path is appended to the URL of the server. It is escaped already.
	Path   string
	Query  url.Values
	Header http.Header
	// Body is sent as JSON, unless it is nil.
	Body any
}

// Response is an answer with a status from 200 to 299.
type Response struct {
	Status int
	Header http.Header
}

// RetryAfter is how long the server asks to wait, and 0 where it does not ask.
func (r Response) RetryAfter() time.Duration { return retryAfter(r.Header) }

// Do sends a request, and decodes the JSON of its answer into the value that into
// points to, unless into is nil. An answer without a body leaves it as it is.
// Every error is an *Error, except for a request that cannot be encoded.
func (c *Client) Do(ctx context.Context, r Request, into any) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	req, err := c.request(ctx, r)
	if err != nil {
		return Response{}, fmt.Errorf("%s %s: %w", r.Method, c.where(r), err)
	}
	fail := &Error{Method: r.Method, Where: c.where(r)}
	res, err := c.http.Do(req)
	if err != nil {
		return Response{}, fail.transport(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, c.config.MaxBody+1))
	if err != nil {
		return Response{}, fail.transport(err)
	}
	if res.StatusCode/100 != 2 {
		return Response{}, fail.status(res, body)
	}
	if int64(len(body)) > c.config.MaxBody {
		return Response{}, fail.as(Malformed, fmt.Sprintf("the answer is larger than %d bytes", c.config.MaxBody), nil)
	}
	if into != nil && len(bytes.TrimSpace(body)) > 0 {
		if err := json.Unmarshal(body, into); err != nil {
			return Response{}, fail.as(Malformed, malformed(err), err)
		}
	}
	return Response{Status: res.StatusCode, Header: res.Header}, nil
}

func (c *Client) request(ctx context.Context, r Request) (*http.Request, error) {
	var body io.Reader
	if r.Body != nil {
		encoded, err := json.Marshal(r.Body)
		if err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	target := c.base.String() + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, body)
	if err != nil {
		return nil, errors.New("method or path is not valid")
	}
	for name, values := range r.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.config.UserAgent != "" {
		req.Header.Set("User-Agent", c.config.UserAgent)
	}
	if c.config.Username != "" {
		req.SetBasicAuth(c.config.Username, c.config.Password)
	} else if c.config.Token != "" {
		req.Header.Set("Authorization", cmp.Or(c.config.TokenScheme, "Bearer")+" "+c.config.Token)
	}
	return req, nil
}

// where is the request's target without port and query: ports may differ from
// start to start, and a query may hold a secret.
func (c *Client) where(r Request) string {
	path, _, _ := strings.Cut(r.Path, "?")
	return c.base.Hostname() + c.base.EscapedPath() + path
}

// malformed names what kind of JSON was expected without quoting the answer.
func malformed(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return fmt.Sprintf("the answer has a JSON %s where another type belongs", wrong.Value)
	}
	return "the answer is not JSON"
}

func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
