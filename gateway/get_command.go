package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/gateway/internal/config"
)

const getTimeout = 15 * time.Second

// get prints the response of a gateway at a URL, or at a path of the gateway on this machine that has the settings of lookup. A status other
// than 200 is an error. It is for pods whose image has no curl.
func get(ctx context.Context, args []string, lookup func(string) (string, bool), out io.Writer) error {
	if len(args) != 1 {
		return errors.New("write gateway get /health, or the whole URL of another gateway")
	}
	if !strings.HasPrefix(args[0], "/") {
		return getFrom(ctx, http.DefaultTransport, args[0], out)
	}
	c, err := config.Load(nil, lookup, io.Discard)
	if err != nil {
		return err
	}
	// The certificate of the local gateway does not name the loopback address.
	own := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // #nosec G402 -- the loopback address
	err = getFrom(ctx, own, localURL(c)+args[0], out)
	if errors.Is(err, errNoKey) {
		return fmt.Errorf("%w, which this command does not send. Forward the port with kubectl port-forward deployment/gateway %d, and send the key with curl --header '%s KEY' %s://127.0.0.1:%[2]d%[5]s",
			err, c.Server.Port, strings.TrimSpace(c.Auth.KeyHeader+": "+c.Auth.KeyPrefix), schemeOf(c), args[0])
	}
	return err
}

// errNoKey is of a path that needs an API key.
var errNoKey = errors.New("it needs an API key")

func schemeOf(c *config.Config) string {
	if c.TLS.Enabled {
		return "https"
	}
	return "http"
}

// localURL returns the URL of the gateway on this machine that has this configuration.
func localURL(c *config.Config) string {
	host := c.Server.Host
	if ip, err := netip.ParseAddr(host); host == "" || (err == nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return schemeOf(c) + "://" + net.JoinHostPort(host, strconv.Itoa(c.Server.Port))
}

func getFrom(ctx context.Context, transport http.RoundTripper, url string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) // #nosec G704 -- the URL is an argument of the command
	if err != nil {
		return err
	}
	res, err := (&http.Client{Transport: transport}).Do(req) // #nosec G704 -- the same
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, err = io.Copy(out, res.Body)
	switch res.StatusCode {
	case http.StatusOK:
		return err
	case http.StatusUnauthorized:
		return errors.Join(err, fmt.Errorf("%s answered %s: %w", url, res.Status, errNoKey))
	default:
		return errors.Join(err, fmt.Errorf("%s answered %s", url, res.Status))
	}
}
