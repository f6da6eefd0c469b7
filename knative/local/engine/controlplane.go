package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/stack/knative/local/pki"
	"github.com/vitistack/stack/knative/local/process"
)

const (
	etcdSocket      = "etcd.sock"
	serviceNetwork  = "10.96.0.0/16"
	issuer          = "https://kubernetes.default.svc" // of ServiceAccount tokens
	pollInterval    = 10 * time.Millisecond
	componentGrace  = 5 * time.Second
	controllerGrace = 2 * time.Second
)

// auditPolicy logs who did what to which object, when it was done.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
`

// controlPlane is etcd and the API server.
type controlPlane struct {
	state    *state
	self     string
	keys     pki.Files
	listener *net.TCPListener // of the API server; it outlives the process
	socket   *os.File
	audit    bool
	more     []string // flags
}

func newControlPlane(o Options, s *state) (*controlPlane, error) {
	keys, err := pki.Ensure(s.path("pki"), time.Now())
	if err != nil {
		return nil, err
	}
	listener, err := s.listen("kube-apiserver", o.APIServerPort, "--apiserver-port")
	if err != nil {
		return nil, err
	}
	socket, err := listener.File()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("share the socket of the API server: %w", err), listener.Close())
	}
	p := &controlPlane{state: s, self: o.Self, keys: keys, listener: listener, socket: socket, audit: o.Audit, more: o.ServerFlags}
	if o.Audit {
		err = writeFile(s.path("audit-policy.yaml"), []byte(auditPolicy), 0o600)
	}
	admin := api.AuthInfo{ClientCertificate: keys.AdminCert, ClientKey: keys.AdminKey}
	return p, errors.Join(err, writeKubeconfig(s.path("kubeconfig"), p.url(), keys.CA, "default", admin))
}

func (p *controlPlane) url() string { return "https://" + p.listener.Addr().String() }

func (p *controlPlane) close() error { return errors.Join(p.socket.Close(), p.listener.Close()) }

func (p *controlPlane) etcd() process.Spec {
	ready := &readyPipe{}
	return process.Spec{
		Name: "etcd", Kind: "component", Grace: componentGrace, Ready: ready.wait,
		Command: func(context.Context) (process.Command, error) {
			child, err := ready.open()
			return process.Command{Path: p.self, Args: []string{"etcd", "--data-dir=etcd"}, Env: os.Environ(), Dir: p.state.dir, Files: []*os.File{child}}, err
		},
	}
}

func (p *controlPlane) apiServer() process.Spec {
	return process.Spec{
		Name: "kube-apiserver", Kind: "component", Port: portOf(p.listener), Grace: componentGrace,
		Command: func(context.Context) (process.Command, error) {
			return process.Command{
				Path: p.self, Args: append([]string{"kube-apiserver"}, p.apiServerFlags()...),
				Env: append(apiServerEnv(), os.Environ()...), Dir: p.state.dir, Files: []*os.File{p.socket},
			}, nil
		},
		Ready: func(ctx context.Context) error { return p.await(ctx, bootstrap...) },
	}
}

// apiServerEnv trades memory for CPU, because otherwise a fifth of it is spent on garbage collection and growing stacks. Variables in the engine's own
// environment override it.
func apiServerEnv() []string { return []string{"GOGC=200", "GODEBUG=adaptivestackstart=1"} }

func (p *controlPlane) apiServerFlags() []string {
	flags := []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--client-ca-file=" + p.keys.CA,
		"--tls-cert-file=" + p.keys.ServingCert,
		"--tls-private-key-file=" + p.keys.ServingKey,
		"--authorization-mode=RBAC",
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + p.keys.ServiceAccountKey,
		"--service-account-signing-key-file=" + p.keys.ServiceAccountKey,
		"--service-cluster-ip-range=" + serviceNetwork,
		"--profiling=false",
		// The controller that removes this finalizer does not run here.
		"--disable-admission-plugins=StorageObjectInUseProtection",
		// An idle API server must not write endpoints or a lease.
		"--endpoint-reconciler-type=none",
		"--feature-gates=APIServerIdentity=false",
	}
	if p.audit {
		flags = append(flags, "--audit-policy-file=audit-policy.yaml", "--audit-log-path="+p.state.path("logs", "audit.log"),
			"--audit-log-maxsize=100", "--audit-log-maxbackup=5")
	}
	return append(flags, p.more...)
}

// bootstrap are readiness checks that an administrator can ignore. They create roles and classes, and wait a second before they start.
var bootstrap = []string{"poststarthook/rbac/bootstrap-roles", "poststarthook/scheduling/bootstrap-system-priority-classes"}

// awaitReady waits until the API server is ready for every user.
func (p *controlPlane) awaitReady(ctx context.Context) error { return p.await(ctx) }

// await waits until the API server is ready, except for some checks.
func (p *controlPlane) await(ctx context.Context, except ...string) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	target := p.url() + "/readyz?" + url.Values{"exclude": except}.Encode()
	return poll(ctx, func() bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return false
		}
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	})
}

func (p *controlPlane) client() (*http.Client, error) {
	ca, err := os.ReadFile(p.keys.CA)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	admin, err := tls.LoadX509KeyPair(p.keys.AdminCert, p.keys.AdminKey)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the administrator: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{admin}}}}, nil
}

func controllers(o Options, s *state) process.Spec {
	return process.Spec{
		Name: "kube-controllers", Kind: "component", Grace: controllerGrace,
		Command: func(context.Context) (process.Command, error) {
			return process.Command{Path: o.Self, Args: []string{"kube-controllers", "--kubeconfig=" + s.path("kubeconfig")}, Env: os.Environ(), Dir: s.dir}, nil
		},
	}
}

// poll calls holds until it returns true or ctx ends, and then returns the cause of that.
func poll(ctx context.Context, holds func() bool) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) { return holds(), nil })
	if err != nil {
		return context.Cause(ctx)
	}
	return nil
}

// readyPipe is how a component reports that it is ready: by a byte on its file descriptor 3.
type readyPipe struct {
	mu            sync.Mutex
	parent, child *os.File
}

// open returns the write end for the next start of the component.
func (r *readyPipe) open() (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parent != nil {
		_ = r.parent.Close()
		_ = r.child.Close()
	}
	var err error
	if r.parent, r.child, err = os.Pipe(); err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	return r.child, nil
}

func (r *readyPipe) wait(ctx context.Context) error {
	r.mu.Lock()
	parent := r.parent
	r.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = parent.SetReadDeadline(time.Unix(1, 0)) })()
	if _, err := parent.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the component to say that it is ready: %w", err)
	}
	return nil
}
