package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	pve "github.com/luthermonson/go-proxmox"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	wireclient "github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/internal/kube"
)

// defaultTimeout bounds a request if the MachineProvider names no timeout.
const defaultTimeout = 10 * time.Second

// transports keeps idle connections between deliveries, by the authority that they trust.
type transports struct {
	mu   sync.Mutex
	open map[string]*http.Transport
}

// transport returns the transport for connections that trust an authority.
func (c *transports) transport(trust wireclient.TLS) (*http.Transport, error) {
	config, err := trust.Config()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprintf("%t %s", trust.Insecure, trust.CA)
	if t, ok := c.open[key]; ok {
		return t, nil
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: outbound.FromEnvironment().DialContext, TLSClientConfig: config, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 20}
	if c.open == nil {
		c.open = map[string]*http.Transport{}
	}
	c.open[key] = t
	return t, nil
}

// Backend is the kind of hypervisor proxmox.
var Backend = hypervisor.Backend{
	Kinds: []func(*runtime.Scheme) error{kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})},
	Open: func(env hypervisor.Environment) hypervisor.Connector {
		open := &transports{}
		return func(ctx context.Context, p *v1alpha1.MachineProvider) (hypervisor.Interface, error) {
			return connect(ctx, env, p, open)
		}
	},
}

// secretKeys says what a Secret with credentials has.
const secretKeys = "the keys tokenID, for example viti@pve!stack, and tokenSecret, or else username and password"

// connect returns the hypervisor of a MachineProvider of type proxmox.
func connect(ctx context.Context, env hypervisor.Environment, p *v1alpha1.MachineProvider, open *transports) (hypervisor.Interface, error) {
	data, err := env.Credentials.Of(ctx, p, secretKeys)
	if err != nil {
		return nil, err
	}
	end := p.Spec.Endpoint // the API server has refused a provider without one
	trust := wireclient.TLS{Insecure: end.InsecureSkipVerify, CA: data["ca.crt"]}
	if end.CABundle != "" {
		trust.CA = []byte(end.CABundle)
	}
	through, err := open.transport(trust)
	if err != nil {
		return nil, hypervisor.UnusableSecret(p, err.Error())
	}
	timeout := cmp.Or(time.Duration(end.TimeoutSeconds)*time.Second, defaultTimeout)
	var under http.RoundTripper = through
	if env.Wrap != nil {
		under = env.Wrap(under)
	}
	options := []pve.Option{pve.WithUserAgent(hypervisor.FunctionName), pve.WithHTTPClient(&http.Client{
		Transport: errorTransport{under}, Timeout: timeout,
		CheckRedirect: outbound.Stay,
	})}
	login := false
	switch {
	case len(data["tokenID"]) > 0 && len(data["tokenSecret"]) > 0:
		options = append(options, pve.WithAPIToken(trimmed(data["tokenID"]), trimmed(data["tokenSecret"])))
	case len(data["username"]) > 0 && len(data["password"]) > 0:
		login = true
		options = append(options, pve.WithCredentials(&pve.Credentials{Username: trimmed(data["username"]), Password: string(data["password"])}), pve.WithDefaultRealm("pam"))
	default:
		return nil, hypervisor.UnusableSecret(p, "it needs "+secretKeys)
	}
	x := newHypervisor(p, api{pve.NewClient(strings.TrimRight(end.URL, "/")+"/api2/json", options...)}, env.Home, env.Namespace)
	if login {
		if err := x.client.CreateSession(ctx); err != nil {
			return nil, x.toUserError(err)
		}
	}
	return x, nil
}

// trimmed returns a value of a Secret without the line break that editors append.
func trimmed(b []byte) string { return strings.TrimSpace(string(b)) }
