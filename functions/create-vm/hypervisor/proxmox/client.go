package proxmox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	pve "github.com/luthermonson/go-proxmox"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	wireclient "github.com/vitistack/stack/functions/internal/wire"
)

const (
	proxmoxTimeout = 10 * time.Second
	maxErrorBody   = 64 << 10
)

// transports keeps idle connections from one delivery to the next, by the
// authority that they trust.
type transports struct {
	mu   sync.Mutex
	open map[string]*http.Transport
}

// transport is the transport for a trust.
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

// Backend is the kind of hypervisor.
var Backend = hypervisor.Backend{
	Kinds: []func(*runtime.Scheme) error{kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}, &coordinationv1.LeaseList{})},
	Open: func(env hypervisor.Environment) hypervisor.Connector {
		open := &transports{}
		return func(ctx context.Context, p *v1alpha1.MachineProvider) (hypervisor.Interface, error) {
			return connect(ctx, env, p, open)
		}
	},
}

// connect returns the hypervisor of a MachineProvider of type proxmox.
func connect(ctx context.Context, env hypervisor.Environment, p *v1alpha1.MachineProvider, open *transports) (hypervisor.Interface, error) {
	data, err := env.Credentials.Of(ctx, p)
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
	timeout := proxmoxTimeout
	if end.TimeoutSeconds > 0 {
		timeout = time.Duration(end.TimeoutSeconds) * time.Second
	}
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
		return nil, hypervisor.UnusableSecret(p, "it needs the keys tokenID, for example viti@pve!stack, and tokenSecret, or else username and password")
	}
	x := &Hypervisor{home: env.Home, namespace: env.Namespace, provider: p, defaults: hypervisor.DefaultsOf(p), client: pve.NewClient(strings.TrimRight(end.URL, "/")+"/api2/json", options...)}
	if p.Spec.Proxmox != nil {
		x.options = *p.Spec.Proxmox
	}
	if login {
		if err := x.client.CreateSession(ctx); err != nil {
			return nil, x.asUserError(err)
		}
	}
	return x, nil
}

func trimmed(b []byte) string { return strings.TrimSpace(string(b)) }

// apiError is an answer of Proxmox VE that says no.
type apiError struct {
	status int
	// message is all that it says, on one line.
	message string
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s", e.status, e.message) }

// errorTransport makes an error of every answer that is one, with all that Proxmox VE
// says. The library keeps the reason phrase of some and nothing of others.
type errorTransport struct{ under http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t errorTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.under.RoundTrip(r)
	if err != nil || response.StatusCode < http.StatusMultipleChoices {
		return response, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil {
		return nil, err
	}
	var told struct {
		Message string            `json:"message"`
		Errors  map[string]string `json:"errors"`
	}
	e := &apiError{status: response.StatusCode, message: strings.TrimSpace(strings.TrimPrefix(response.Status, fmt.Sprint(response.StatusCode)))}
	if json.Unmarshal(body, &told) == nil && told.Message != "" {
		e.message = told.Message
	}
	var wrong []string
	for name, what := range told.Errors {
		wrong = append(wrong, name+": "+what)
	}
	slices.Sort(wrong)
	e.message = strings.Join(strings.Fields(e.message+" "+strings.Join(wrong, ", ")), " ")
	return nil, e
}

// hasMessage tells whether an error is an answer of Proxmox VE with a text in it.
func hasMessage(err error, text string) bool {
	var e *apiError
	return errors.As(err, &e) && strings.Contains(e.message, text)
}

// isMissing tells whether an error says that a virtual machine does not exist, for
// which Proxmox VE has no status of its own.
func isMissing(err error) bool {
	return hasMessage(err, "Configuration file 'nodes/") && hasMessage(err, "does not exist")
}

// isForbidden reports whether an error says that the user lacks a privilege.
func isForbidden(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == http.StatusForbidden
}

// isModified tells whether somebody has changed the configuration meanwhile.
func isModified(err error) bool {
	return hasMessage(err, "checksum mismatch") || hasMessage(err, "detected modified configuration")
}

// asUserError turns what Proxmox VE refuses into something for people to change.
func (x *Hypervisor) asUserError(err error) error {
	var e *apiError
	if !errors.As(err, &e) {
		if untrusted := wireclient.Untrustworthy(err); untrusted != "" {
			return reconcile.UserError{Reason: "EndpointUntrusted", Message: fmt.Sprintf("MachineProvider %s: %s: write its authority into spec.endpoint.caBundle, or into ca.crt of its Secret", x.provider.Name, untrusted)}
		}
		return err
	}
	switch {
	case e.status == http.StatusUnauthorized:
		return hypervisor.UnusableSecret(x.provider, "Proxmox VE does not accept its credentials: "+e.message)
	case e.status == http.StatusForbidden:
		return reconcile.UserError{Reason: "PermissionDenied", Message: "Proxmox VE: " + e.message + ": grant that privilege to the user, and to its token if privileges are separated"}
	case e.status == http.StatusBadRequest, e.status == http.StatusNotImplemented && !hasMessage(err, "Service Unavailable"):
		return reconcile.UserError{Reason: "ProxmoxApiError", Message: "Proxmox VE: " + e.message}
	case e.status == http.StatusInternalServerError:
		return hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "ProxmoxApiError", Message: "Proxmox VE: " + e.message}}
	default:
		return err
	}
}

// taskResult is a task of Proxmox VE as it is.
type taskResult struct {
	running bool
	// failure is why it failed, with what its log says last; it is empty where it
	// succeeded.
	failure string
}

// readTask asks after a task. One that nobody knows any more has ended.
func (x *Hypervisor) readTask(ctx context.Context, upid string) (taskResult, error) {
	if !strings.HasPrefix(upid, "UPID:") || strings.Count(upid, ":") < 8 {
		return taskResult{}, nil
	}
	t := pve.NewTask(pve.UPID(upid), x.client)
	if err := t.Ping(ctx); err != nil {
		if hasMessage(err, "no such task") {
			return taskResult{}, nil
		}
		return taskResult{}, err
	}
	if t.IsRunning || t.IsSuccessful || strings.HasPrefix(t.ExitStatus, "WARNINGS") {
		return taskResult{running: t.IsRunning}, nil
	}
	return taskResult{failure: strings.TrimSpace(t.ExitStatus + x.lastLogLine(ctx, t))}, nil
}

// lastLogLine are the last lines of a task's log that its exit status does not tell.
func (x *Hypervisor) lastLogLine(ctx context.Context, t *pve.Task) string {
	const lines = 200
	log, err := t.Log(ctx, 0, lines)
	if err != nil {
		return ""
	}
	for n := len(log) - 1; n >= 0; n-- {
		line := strings.TrimSpace(log[n])
		if line != "" && !strings.HasPrefix(line, "TASK ") && line != t.ExitStatus {
			return " (" + line + ")"
		}
	}
	return ""
}
