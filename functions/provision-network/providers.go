package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/functions/provision-network/provider/manual"
	"github.com/vitistack/stack/functions/provision-network/provider/nam"
	"github.com/vitistack/stack/functions/provision-network/provider/netbox"
)

// registry has a line for each provider that is not an external IPAM. To add a provider,
// write its package, a line here, and a row in TestProviderContract.
var registry = map[string]func(config) provider.Interface{
	v1alpha2.ProviderManual: func(config) provider.Interface { return manual.Provider{} },
	v1alpha2.ProviderNAM: func(c config) provider.Interface {
		return c.server(v1alpha2.ProviderNAM, nam.Backend, nam.TokenScheme, nam.New)
	},
	v1alpha2.ProviderNetBox: func(c config) provider.Interface {
		return c.server(v1alpha2.ProviderNetBox, netbox.Backend, netbox.TokenScheme, netbox.New)
	},
}

const (
	defaultTimeout = 10 * time.Second
	maxTimeout     = 20 * time.Second // within requestTimeout
)

// config is where the function reads its configuration.
type config struct {
	getenv func(string) string
	// secret reads the data of a Secret.
	secret func(namespace, name string) (map[string][]byte, error)
	// reporter publishes whether the servers of providers answer.
	reporter *backendhealth.Reporter
}

// providers returns the providers of the registry. A provider without a valid configuration rejects
// only its own networks.
func (c config) providers() map[string]provider.Interface {
	all := map[string]provider.Interface{}
	for name, newProvider := range registry {
		all[name] = newProvider(c)
	}
	return all
}

// tokenScheme returns the scheme of the Authorization header for a token.
type tokenScheme func(token string) string

// server returns a provider that is reached by HTTP. The names of its variables begin with
// its own name in capitals.
func (c config) server(providerName string, named provider.Backend, scheme tokenScheme, newServer func(*httpclient.Client) provider.Interface) provider.Interface {
	prefix := strings.ToUpper(providerName)
	if c.getenv(prefix+"_URL") == "" {
		return provider.Unavailable{Err: provider.PermanentError("ProviderNotConfigured",
			"this installation has no provider %s: set %s_URL, or choose another spec.networkProvisioning.provider", providerName, prefix)}
	}
	connect := func() provider.Interface {
		client, err := c.newClient(providerName, prefix, named, scheme)
		if err != nil {
			return provider.Unavailable{Err: provider.PermanentError("ProviderMisconfigured", "provider %s cannot be used: %s", providerName, err)}
		}
		return newServer(client)
	}
	first := connect()
	if _, isUnavailable := first.(provider.Unavailable); isUnavailable {
		return &misconfigured{connect: connect, latest: first}
	}
	return first
}

// misconfigured is a provider whose configuration could not be used when the process started. Each use reads it again until it can be used, because the
// Secret of the certificates may have been created or corrected since, or the API server did not answer.
type misconfigured struct {
	connect func() provider.Interface
	mu      sync.Mutex
	latest  provider.Interface
}

// resolve returns the provider, which is Unavailable while its configuration cannot be used.
func (m *misconfigured) resolve() provider.Interface {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, isUnavailable := m.latest.(provider.Unavailable); isUnavailable {
		m.latest = m.connect()
	}
	return m.latest
}

// Provide implements provider.Interface.
func (m *misconfigured) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	return m.resolve().Provide(ctx, nn)
}

// Release implements provider.Interface.
func (m *misconfigured) Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	return m.resolve().Release(ctx, nn)
}

// newClient returns the HTTP client of a provider, which reads the environment and the
// Secret of the certificates again when its credentials are refused.
func (c config) newClient(providerName, prefix string, named provider.Backend, scheme tokenScheme) (*httpclient.Client, error) {
	options, err := c.clientConfig(prefix, scheme)
	if err != nil {
		return nil, err
	}
	options.Renew = func() (httpclient.Config, error) { return c.clientConfig(prefix, scheme) }
	options.Report = publishTo(c.reporter, providerName, named)
	client, err := httpclient.New(options)
	if err != nil {
		return nil, fmt.Errorf("%w: correct %s_URL", err, prefix)
	}
	return client, nil
}

func (c config) clientConfig(prefix string, scheme tokenScheme) (httpclient.Config, error) {
	timeout := defaultTimeout
	if text := c.getenv(prefix + "_TIMEOUT_SECONDS"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 1 {
			return httpclient.Config{}, fmt.Errorf("write a number of seconds from 1 into %s_TIMEOUT_SECONDS", prefix)
		}
		timeout = min(time.Duration(seconds)*time.Second, maxTimeout)
	}
	var trust httpclient.TLS
	if secretName := c.getenv(prefix + "_TLS_SECRET_NAME"); secretName != "" {
		data, err := c.secret(kube.Namespace(c.getenv), secretName)
		if err != nil {
			return httpclient.Config{}, fmt.Errorf("%w: correct %s_TLS_SECRET_NAME", err, prefix)
		}
		trust = httpclient.SecretTLS(data)
	}
	token := strings.TrimSpace(c.getenv(prefix + "_TOKEN"))
	return httpclient.Config{
		URL: c.getenv(prefix + "_URL"), Timeout: timeout, TLS: trust, Token: token, TokenScheme: scheme(token), UserAgent: "vitistack-" + name,
		Outbound: outbound.Parse(c.getenv(outbound.Variable)),
	}, nil
}
