package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/vitistack/stack/events/setting"
)

const getTimeout = 15 * time.Second

// get prints the response of a gateway at a URL, or at a path of the gateway at local. A status other than 200 is an error. It is for
// pods whose image has no curl.
func get(ctx context.Context, args []string, local string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("write gateway get /health, or the whole URL of another gateway")
	}
	if !strings.HasPrefix(args[0], "/") {
		return getFrom(ctx, http.DefaultTransport, args[0], out)
	}
	// The certificate of the local gateway does not name the loopback address.
	own := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // #nosec G402 -- the loopback address
	return getFrom(ctx, own, local+args[0], out)
}

// localURL returns the URL of the gateway on this machine that has this environment.
func localURL(getenv func(string) string) string {
	scheme := "http"
	if on, err := setting.Bool(getenv("TLS_ENABLED")); err == nil && on {
		scheme = "https"
	}
	return scheme + "://127.0.0.1:" + cmp.Or(getenv("PORT"), "9991")
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
	if res.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s answered %s", url, res.Status))
	}
	return err
}
