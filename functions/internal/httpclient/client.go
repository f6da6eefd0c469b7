// Package httpclient calls the HTTP APIs of other systems: one request at a time, with a deadline, a
// limited size of the answer, and errors with stable texts for conditions. It does not retry,
// because the Broker redelivers events.
package httpclient

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
	"sync"
	"sync/atomic"
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
	// URL is the base URL of the API, without credentials. Example:
	// https://nam.example.com/v1.
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
	// Outbound says which servers may be connected to.
	Outbound outbound.Rules
	// Renew reads the configuration again. The client calls it after the server has refused
	// the credentials or the certificate, at most once in renewInterval, and then sends the
	// request again if Credentials differ. nil means that they never change.
	Renew func() (Config, error)
	// Report is called after each request with the time at which it was sent, and with its error. nil reports nothing.
	Report func(ctx context.Context, began time.Time, err error)
}

// renewInterval bounds how often wrong credentials are read again.
const renewInterval = time.Second

// Client talks to one server. It keeps nothing but idle connections and the credentials
// that it read last, and may be used by many at once.
type Client struct {
	base    *url.URL
	renew   func() (Config, error)
	report  func(ctx context.Context, began time.Time, err error)
	session atomic.Pointer[session]
	// renewing guards renewed, the time of the last call of renew.
	renewing sync.Mutex
	renewed  time.Time
}

// session is a configuration and the connections that were made with it.
type session struct {
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
		return nil, fmt.Errorf("read the URL of %s: a URL must not contain credentials: configure them with their own variables", base.Host)
	}
	base.RawQuery, base.Fragment = "", ""
	base.Path = strings.TrimRight(base.Path, "/")
	first, err := newSession(base.Host, config)
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, renew: config.Renew, report: config.Report}
	c.session.Store(first)
	return c, nil
}

func newSession(host string, config Config) (*session, error) {
	tlsConfig, err := config.TLS.Config()
	if err != nil {
		return nil, fmt.Errorf("set up TLS for %s: %w", host, err)
	}
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	config.MaxBody = cmp.Or(config.MaxBody, defaultMaxBody)
	transport := &http.Transport{
		Proxy:             http.ProxyFromEnvironment,
		DialContext:       config.Outbound.DialContext,
		TLSClientConfig:   tlsConfig,
		DisableKeepAlives: config.DisableKeepAlives,
		IdleConnTimeout:   30 * time.Second,
		ForceAttemptHTTP2: true,
	}
	return &session{config: config, http: &http.Client{Transport: transport, CheckRedirect: outbound.Stay}}, nil
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
// points to, unless into is nil. An answer without a body leaves it unchanged.
// Every error is an *Error, except for a request that cannot be encoded.
func (c *Client) Do(ctx context.Context, r Request, into any) (Response, error) {
	began := time.Now()
	response, err := c.doRenewed(ctx, r, into)
	if c.report != nil {
		c.report(ctx, began, err)
	}
	return response, err
}

// doRenewed sends a request, and once more with other credentials if the server refuses the present ones.
func (c *Client) doRenewed(ctx context.Context, r Request, into any) (Response, error) {
	used := c.session.Load()
	response, err := c.do(ctx, used, r, into)
	if !isRefused(err) {
		return response, err
	}
	if renewed := c.renewSession(used); renewed != nil {
		return c.do(ctx, renewed, r, into)
	}
	return response, err
}

// isRefused reports whether other credentials or certificates may lead to an answer.
func isRefused(err error) bool {
	var failed *Error
	return errors.As(err, &failed) && (failed.Kind == Unauthorized || failed.Kind == Untrusted)
}

// renewSession replaces the session whose credentials were refused. It returns nil if
// the credentials are still the same, or were read less than renewInterval ago.
func (c *Client) renewSession(refused *session) *session {
	if c.renew == nil {
		return nil
	}
	c.renewing.Lock()
	defer c.renewing.Unlock()
	if present := c.session.Load(); present != refused {
		return present
	}
	if time.Since(c.renewed) < renewInterval {
		return nil
	}
	c.renewed = time.Now()
	config, err := c.renew()
	if err != nil || refused.config.hasCredentialsOf(config) {
		return nil
	}
	next, err := newSession(c.base.Host, config)
	if err != nil {
		return nil
	}
	c.session.Store(next)
	refused.http.CloseIdleConnections()
	return next
}

func (c Config) hasCredentialsOf(other Config) bool {
	return c.Username == other.Username && c.Password == other.Password &&
		c.Token == other.Token && c.TokenScheme == other.TokenScheme &&
		bytes.Equal(c.TLS.CA, other.TLS.CA) && bytes.Equal(c.TLS.Cert, other.TLS.Cert) && bytes.Equal(c.TLS.Key, other.TLS.Key)
}

func (c *Client) do(ctx context.Context, s *session, r Request, into any) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	req, err := c.request(ctx, s.config, r)
	if err != nil {
		return Response{}, fmt.Errorf("%s %s: %w", r.Method, c.where(r), err)
	}
	fail := &Error{Method: r.Method, Where: c.where(r)}
	res, err := s.http.Do(req)
	if err != nil {
		return Response{}, fail.transport(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, s.config.MaxBody+1))
	if err != nil {
		return Response{}, fail.transport(err)
	}
	if res.StatusCode/100 != 2 {
		return Response{}, fail.status(res, body)
	}
	if int64(len(body)) > s.config.MaxBody {
		return Response{}, fail.as(Malformed, fmt.Sprintf("the answer is larger than %d bytes", s.config.MaxBody), nil)
	}
	if into != nil && len(bytes.TrimSpace(body)) > 0 {
		if err := json.Unmarshal(body, into); err != nil {
			return Response{}, fail.as(Malformed, malformed(err), err)
		}
	}
	return Response{Status: res.StatusCode, Header: res.Header}, nil
}

func (c *Client) request(ctx context.Context, config Config, r Request) (*http.Request, error) {
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
	if config.UserAgent != "" {
		req.Header.Set("User-Agent", config.UserAgent)
	}
	if config.Username != "" {
		req.SetBasicAuth(config.Username, config.Password)
	} else if config.Token != "" {
		req.Header.Set("Authorization", cmp.Or(config.TokenScheme, "Bearer")+" "+config.Token)
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
