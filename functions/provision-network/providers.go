package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/wire"
)

const (
	defaultTimeout = 10 * time.Second
	maxTimeout     = 20 * time.Second // a delivery has 25 s
)

// environment is what the function is configured by.
type environment struct {
	getenv func(string) string
	// secret reads the data of a Secret.
	secret func(namespace, name string) (map[string][]byte, error)
}

// sources are the providers of this installation that are not asked by events. One
// that is not configured, or not rightly, refuses its own networks and no others.
func (e environment) sources() map[string]source {
	return map[string]source{
		v1alpha2.ProviderManual: manual{},
		v1alpha2.ProviderNAM: e.source("NAM", v1alpha2.ProviderNAM, bearerScheme, func(c *wire.Client) source {
			return nam{c}
		}),
		v1alpha2.ProviderNetBox: e.source("NETBOX", v1alpha2.ProviderNetBox, netboxScheme, func(c *wire.Client) source {
			return netbox{netboxAPI{c}}
		}),
	}
}

// datacenters are those that have no bridge in common with another one, so that
// networks of the same prefix and VLAN may be in both. Only the platform team knows.
func (e environment) datacenters() map[v1alpha2.Identifier]bool {
	separate := map[v1alpha2.Identifier]bool{}
	for name := range strings.SplitSeq(e.getenv("SEPARATE_DATACENTERS"), ",") {
		if name = strings.TrimSpace(name); name != "" {
			separate[v1alpha2.Identifier(name)] = true
		}
	}
	return separate
}

// netboxScheme is how NetBox is shown a token: as a bearer token if it is one of the
// second version, which there are since NetBox 4.5.
func netboxScheme(token string) string {
	if strings.HasPrefix(token, "nbt_") {
		return bearerScheme(token)
	}
	return "Token"
}

func bearerScheme(string) string { return "Bearer" }

// source makes one out of the variables that begin with a prefix.
func (e environment) source(prefix, provider string, scheme func(token string) string, with func(*wire.Client) source) source {
	address := e.getenv(prefix + "_URL")
	if address == "" {
		return absent{fault{reason: "ProviderNotConfigured", final: true, message: fmt.Sprintf(
			"this installation has no provider %s: set %s_URL, or choose another spec.networkProvisioning.provider", provider, prefix)}}
	}
	client, err := e.connect(prefix, scheme, address)
	if err != nil {
		return absent{final("ProviderMisconfigured", "provider %s cannot be used: %s", provider, err)}
	}
	return with(client)
}

// connect makes the client of a provider, which reads the environment and the Secret of
// the certificates again when its credentials are refused.
func (e environment) connect(prefix string, scheme func(token string) string, address string) (*wire.Client, error) {
	config, err := e.clientConfig(prefix, scheme, address)
	if err != nil {
		return nil, err
	}
	config.Renew = func() (wire.Config, error) { return e.clientConfig(prefix, scheme, address) }
	client, err := wire.New(config)
	if err != nil {
		return nil, fmt.Errorf("%w: correct %s_URL", err, prefix)
	}
	return client, nil
}

func (e environment) clientConfig(prefix string, scheme func(token string) string, address string) (wire.Config, error) {
	timeout := defaultTimeout
	if text := e.getenv(prefix + "_TIMEOUT_SECONDS"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 1 {
			return wire.Config{}, fmt.Errorf("write a number of seconds from 1 into %s_TIMEOUT_SECONDS", prefix)
		}
		timeout = min(time.Duration(seconds)*time.Second, maxTimeout)
	}
	var trust wire.TLS
	if name := e.getenv(prefix + "_TLS_SECRET_NAME"); name != "" {
		data, err := e.secret(kube.Namespace(e.getenv), name)
		if err != nil {
			return wire.Config{}, fmt.Errorf("%w: correct %s_TLS_SECRET_NAME", err, prefix)
		}
		trust = wire.SecretTLS(data)
	}
	token := strings.TrimSpace(e.getenv(prefix + "_TOKEN"))
	return wire.Config{
		URL: address, Timeout: timeout, TLS: trust, Token: token, TokenScheme: scheme(token), UserAgent: "vitistack-" + name,
		Outbound: outbound.Parse(e.getenv(outbound.Variable)),
	}, nil
}

// absent is a provider that this installation does not have, or that a network may not use.
type absent struct{ why error }

// Provide says so.
func (a absent) Provide(context.Context, *v1alpha2.NetworkNamespace) (segment, error) {
	return segment{}, a.why
}

// Release says so as well: what was asked of it earlier has to be given back there.
func (a absent) Release(context.Context, *v1alpha2.NetworkNamespace) error { return a.why }
