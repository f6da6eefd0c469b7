// Package addonsource reads the manifests of add-ons by their URLs: files and OCI artifacts, from the hosts that the
// platform team allows.
package addonsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
)

// Hosts reads the manifests of add-ons from the hosts that the platform team allows.
type Hosts struct {
	rules addons.HostRules
	// Client connects only to these hosts. It is nil if there is none.
	Client *http.Client
}

// timeout is how long the manifests of an add-on may take.
const timeout = 10 * time.Second

// New returns the hosts of a list in the form of ALLOWED_ENDPOINTS. Unlike there, an empty list allows
// none.
func New(list string) *Hosts {
	if strings.TrimSpace(list) == "" {
		return &Hosts{rules: addons.NoHosts{}}
	}
	rules := outbound.Parse(list).ThroughProxy()
	return &Hosts{rules: rules, Client: &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{DialContext: rules.DialContext, DisableKeepAlives: true, TLSHandshakeTimeout: timeout, ForceAttemptHTTP2: true},
		CheckRedirect: checkRedirect,
	}}
}

// errRedirect is a redirect that is not followed.
var errRedirect = errors.New("it redirects to a URL without https, or too often: write the URL of the manifests themselves")

// checkRedirect follows redirects to https, because releases are often at a host of their own. Each connection
// is checked by the rules.
func checkRedirect(to *http.Request, before []*http.Request) error {
	if to.URL.Scheme != "https" || len(before) > 5 {
		return errRedirect
	}
	return nil
}

// Read returns the manifests of an add-on by the names of their files. A UserError says what the host of its URL answers
// otherwise.
func (h *Hosts) Read(ctx context.Context, a v1alpha1.ClusterAddon) (map[string]string, error) {
	if err := addons.CheckHost(a, h.rules); err != nil {
		return nil, err
	}
	if strings.HasPrefix(a.URL, artifactScheme) {
		return h.readArtifact(ctx, a)
	}
	text, err := h.readFile(ctx, a)
	if err != nil {
		return nil, err
	}
	return map[string]string{path.Base(a.URL): text}, nil
}

// readFile returns the manifests of an add-on whose URL is that of a file.
func (h *Hosts) readFile(ctx context.Context, a v1alpha1.ClusterAddon) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
	if err != nil {
		return "", addons.Problem(a.Name, addons.ReasonNotFound, err.Error())
	}
	res, err := h.Client.Do(req)
	if err != nil {
		return "", readProblem(a, err)
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case isUnavailable(res.StatusCode):
		return "", addons.Problem(a.Name, addons.ReasonUnavailable, fmt.Sprintf("%s answers %s. The stack checks again every minute", a.URL, res.Status))
	case res.StatusCode != http.StatusOK:
		return "", addons.Problem(a.Name, addons.ReasonNotFound, fmt.Sprintf("%s answers %s: write a URL that answers without credentials, or put the manifests into a ConfigMap and name it in configMap", a.URL, res.Status))
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, addons.MaxSize+1))
	if err != nil {
		return "", readProblem(a, err)
	}
	if len(body) > addons.MaxSize {
		return "", addons.Problem(a.Name, addons.ReasonInvalid, fmt.Sprintf("%s has more than %d MiB: split it into several add-ons", a.URL, addons.MaxSize>>20))
	}
	return string(body), nil
}

// isUnavailable reports whether a status means that the same request may succeed later.
func isUnavailable(status int) bool {
	return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
}

// readProblem returns the UserError for a URL that could not be read.
func readProblem(a v1alpha1.ClusterAddon, err error) error {
	var denied *outbound.Denied
	if errors.As(err, &denied) {
		return addons.Problem(a.Name, addons.ReasonNotAllowed, fmt.Sprintf("%s leads to %s, from which manifests are not read: have that host added to %s of bootstrap-talos too, or put the manifests into a ConfigMap",
			a.URL, denied.Host, addons.HostsVariable))
	}
	return addons.Problem(a.Name, addons.ReasonUnavailable, fmt.Sprintf("%s cannot be read: %s. The stack checks again every minute", a.URL, innermost(err)))
}

// innermost returns the text of an error without the URL that http.Client adds.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}
