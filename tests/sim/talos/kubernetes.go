package talos

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"log"
	"net"
	"net/http"
	"strconv"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"github.com/vitistack/stack/tests/sim/talos/internal/workload"
)

// stepKubernetes runs an API server on every control plane node whose etcd runs, and creates the
// objects of a new cluster. An API server restarts after a change of what its pod is rendered from.
func (c *cluster) stepKubernetes() {
	for _, n := range c.controlPlanes() {
		b := n.boot
		up := b.etcd == etcdUp
		if b.kubernetes != nil && !up {
			b.kubernetes.retire()
			b.kubernetes = nil
		}
		if up && b.rendered != n.clusterSection {
			b.rendered = n.clusterSection
			b.renderings++
			if b.kubernetes != nil {
				b.restartKubernetes(c)
			}
		}
		if up && b.kubernetes == nil && !b.restarting && b.pullKubelet() && isPublished(n.config.Cluster().APIServer().Image()) {
			b.served, b.running = imageTag(n.config.Cluster().APIServer().Image()), b.renderings
			b.store(n.config.Cluster().APIServer().Image())
			b.listenKubernetes(c)
		}
	}
	online := c.online()
	if err := c.workload.SetOnline(online); err != nil {
		c.fleet.log.Error("run the cluster", "cluster", c.Key, "error", err)
	}
	if online && !c.workload.Seeded() {
		if err := c.workload.Seed(seedOf(c.controlPlanes()[0])); err != nil {
			c.fleet.log.Error("fill the cluster", "cluster", c.Key, "error", err)
		}
	}
	if online {
		c.stepManifests()
		c.publishAuthority()
	}
}

// restartKubernetes ends the API server a moment after its pod is rendered, and starts it a moment
// later, unless the pod is rendered again before. The kubelet ends the pod that runs before it pulls the image of
// the next one.
func (b *boot) restartKubernetes(c *cluster) {
	pause, rendering := c.fleet.timing.StaticPods, b.renderings
	b.later(pause, func() {
		if b.renderings != rendering || b.kubernetes == nil {
			return
		}
		b.kubernetes.retire()
		b.kubernetes, b.restarting = nil, true
		c.fleet.reconcile(c)
		if _, ok := b.stored(b.node.config.Cluster().APIServer().Image()); !ok {
			pause += c.fleet.timing.StaticPodPull
		}
		b.later(pause, func() {
			b.restarting = false
			c.fleet.reconcile(c)
		})
	})
}

// publishAuthority plays the controller manager: it publishes the authority that signs on its control
// plane, and none that is only accepted there.
func (c *cluster) publishAuthority() {
	for _, n := range c.controlPlanes() {
		if n.boot.kubernetes == nil {
			continue
		}
		if err := c.workload.PublishAuthority(string(n.config.Cluster().IssuingCA().Crt)); err != nil {
			c.fleet.log.Error("publish the authority of a cluster", "cluster", c.Key, "error", err)
		}
		return
	}
}

func (b *boot) listenKubernetes(c *cluster) {
	cfg := b.node.config
	serving, clients, err := kubernetesTLS(cfg, b.network)
	if err != nil {
		b.fail("make the Kubernetes API certificate", err)
		return
	}
	web := &http.Server{
		Handler: b.withFaults(&workload.Server{
			Cluster: c.workload, Version: b.served,
			Authenticate: func(r *http.Request) (workload.User, bool) { return userOf(r, clients) },
			Storage:      b.storage,
		}),
		TLSConfig:   serving,
		BaseContext: func(net.Listener) context.Context { return b.ctx },
		// A client that aborts a handshake is not logged.
		ErrorLog: log.New(discard{}, "", 0),
	}
	e, err := listen(b.network.address.Addr(), uint16(cfg.Cluster().LocalAPIServerPort()), b.withHandshakeFault, backend{
		serve:  func(l net.Listener) { _ = web.ServeTLS(l, "", "") },
		finish: func() { _ = web.Shutdown(context.Background()) },
		stop:   func() { _ = web.Close() },
	})
	if err != nil {
		b.fail("listen for Kubernetes", err)
		return
	}
	for _, vip := range b.vips {
		if err := e.add(vip, b.withHandshakeFault); err != nil {
			b.fail("listen for Kubernetes on the shared address", err)
		}
	}
	b.kubernetes = e
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// kubernetesTLS returns a TLS configuration with a certificate of the cluster's authority. It requests
// client certificates, which userOf checks.
func kubernetesTLS(cfg config.Provider, n wiring) (*tls.Config, *stdx509.CertPool, error) {
	k := cfg.Cluster()
	ca := k.IssuingCA()
	if ca == nil || len(ca.Key) == 0 {
		return nil, nil, errors.New("cluster.ca has no key")
	}
	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Crt)
	for _, accepted := range k.AcceptedCAs() {
		pool.AppendCertsFromPEM(accepted.Crt)
	}
	issued := issue(ca, n, serverNames(cfg), stdx509.ExtKeyUsageServerAuth)
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ClientAuth: tls.RequestClientCert,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return issued() },
	}, pool, nil
}

// serverNames returns the names and addresses of the API server in addition to the machine's.
func serverNames(cfg config.Provider) []string {
	k := cfg.Cluster()
	domain := k.Network().DNSDomain()
	sans := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + domain, "localhost"}, k.CertSANs()...)
	if endpoint := k.Endpoint(); endpoint != nil {
		sans = append(sans, endpoint.Hostname())
	}
	if ips, err := k.Network().APIServerIPs(); err == nil {
		for _, ip := range ips {
			sans = append(sans, ip.String())
		}
	}
	return sans
}

// userOf returns the user in the client's certificate, if the cluster issued it.
func userOf(r *http.Request, clients *stdx509.CertPool) (workload.User, bool) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return workload.User{}, false
	}
	leaf := r.TLS.PeerCertificates[0]
	if _, err := leaf.Verify(stdx509.VerifyOptions{Roots: clients, KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}}); err != nil {
		return workload.User{}, false
	}
	return workload.User{Name: leaf.Subject.CommonName, Groups: leaf.Subject.Organization}, true
}

// storage returns why this API server's etcd cannot answer.
func (b *boot) storage() error {
	f := b.node.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	c := b.node.cluster()
	if b.node.boot != b || c == nil || b.etcd != etcdUp || !c.quorum() {
		return errors.New("etcdserver: no leader")
	}
	return nil
}

// withFaults adds the faults of the operation "workload" to an API server: an HTTP status, the end of
// the connection ("reset"), or a 500.
func (b *boot) withFaults(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault := b.node.fleet.plan.Next("workload")
		if fault.Wait(r.Context()) != nil {
			return
		}
		if reason, ok := fault.Before(); ok {
			refuse(w, reason)
			return
		}
		if reason, ok := fault.Lost(); ok {
			next.ServeHTTP(&swallow{header: http.Header{}}, r)
			refuse(w, reason)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, reason string) {
	if reason == connectionReset {
		panic(http.ErrAbortHandler) // net/http's way to drop a connection
	}
	code, err := strconv.Atoi(reason)
	if err != nil || code < 400 || code > 599 {
		code = http.StatusInternalServerError
	}
	http.Error(w, "fault: "+reason, code)
}

// swallow discards an answer that the client must not get.
type swallow struct{ header http.Header }

func (s *swallow) Header() http.Header         { return s.header }
func (s *swallow) Write(p []byte) (int, error) { return len(p), nil }
func (s *swallow) WriteHeader(int)             {}

// kubernetesCAs returns the certificates that a node trusts in Kubernetes, the signing authority
// first.
func kubernetesCAs(cfg config.Provider) []string {
	var trusted []string
	if ca := cfg.Cluster().IssuingCA(); ca != nil {
		trusted = append(trusted, string(ca.Crt))
	}
	for _, ca := range cfg.Cluster().AcceptedCAs() {
		trusted = append(trusted, string(ca.Crt))
	}
	return trusted
}
