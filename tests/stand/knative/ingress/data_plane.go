package main

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/discovery/v1"
)

// dataPlane forwards requests.
type dataPlane struct {
	routes    func(host string) (rule, bool)
	endpoints listers.EndpointSliceLister
	transport http.RoundTripper
}

// newTransport returns a transport with short time-outs for connections, because a pod that has ended does not answer.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 200, IdleConnTimeout: 10 * time.Second, DisableCompression: true,
	}
}

// ServeHTTP implements http.Handler. The path /ready of an unknown host answers the readiness probe.
func (d *dataPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	rule, ok := d.routes(host)
	if !ok {
		if r.URL.Path != "/ready" {
			http.Error(w, "no KIngress has the host "+host, http.StatusNotFound)
		}
		return
	}
	path, ok := rule.match(r)
	if !ok {
		http.Error(w, "no path of the KIngress matches", http.StatusNotFound)
		return
	}
	chosen := path.choose(rand.IntN(100))
	target, err := d.pick(chosen)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	proxy := &httputil.ReverseProxy{
		Transport: d.transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: target})
			p.SetXForwarded()
			p.Out.Host = r.Host
			if path.RewriteHost != "" {
				p.Out.Host = path.RewriteHost
			}
			for _, headers := range []map[string]string{path.AppendHeaders, chosen.AppendHeaders} {
				for name, value := range headers {
					p.Out.Header.Set(name, value)
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			slog.Error("Forward failed", "host", host, "address", target, "error", err)
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	proxy.ServeHTTP(w, r)
}

// match returns the first path that matches a request.
func (r rule) match(request *http.Request) (path, bool) {
next:
	for _, candidate := range r.Paths {
		if !strings.HasPrefix(request.URL.Path, candidate.Path) {
			continue
		}
		for name, match := range candidate.Headers {
			if request.Header.Get(name) != match.Exact {
				continue next
			}
		}
		return candidate, len(candidate.Splits) > 0
	}
	return path{}, false
}

// choose returns the split for a number from 0 to 99. A single split may have no percentage.
func (p path) choose(number int) split {
	for _, candidate := range p.Splits {
		if number -= candidate.Percent; number < 0 {
			return candidate
		}
	}
	return p.Splits[len(p.Splits)-1]
}

// pick returns a ready address behind the HTTP port of a Service.
func (d *dataPlane) pick(s split) (string, error) {
	list, err := d.endpoints.EndpointSlices(s.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: s.Name}))
	if err != nil {
		return "", err
	}
	var all []string
	for _, slice := range list {
		port := httpPort(slice.Ports)
		if port == "" {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready {
				continue
			}
			for _, address := range endpoint.Addresses {
				all = append(all, net.JoinHostPort(address, port))
			}
		}
	}
	if len(all) == 0 {
		return "", fmt.Errorf("service %s/%s has no ready endpoint", s.Namespace, s.Name)
	}
	return all[rand.IntN(len(all))], nil
}

// httpPort returns the port that Knative names http, or http2 for HTTP/2 without TLS.
func httpPort(ports []discoveryv1.EndpointPort) string {
	for _, p := range ports {
		if p.Name != nil && p.Port != nil && (*p.Name == "http" || *p.Name == "http2" || *p.Name == "h2c") {
			return strconv.Itoa(int(*p.Port))
		}
	}
	return ""
}
