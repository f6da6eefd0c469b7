package talos

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	talosx509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	resources "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// RotationClients are clients of the present and of the next authorities, by which a node shows
// what it accepts.
type RotationClients struct {
	talos, kubernetes struct{ present, next *Credentials }
	// Renew are the workers that need a new certificate, as observed last.
	Renew []string
}

// NewRotationClients makes the clients for keys that are being rotated.
func NewRotationClients(k *Keys) (*RotationClients, error) {
	r := &RotationClients{}
	var err error
	for _, client := range []struct {
		to    **Credentials
		as    func(bundle *secrets.Bundle, others ...*secrets.Bundle) (*Credentials, error)
		which *secrets.Bundle
		other *secrets.Bundle
	}{
		{&r.talos.present, NewCredentials, k.Present, k.Next},
		{&r.talos.next, NewCredentials, k.Next, k.Present},
		{&r.kubernetes.present, KubernetesCredentials, k.Present, k.Next},
		{&r.kubernetes.next, KubernetesCredentials, k.Next, k.Present},
	} {
		if *client.to, err = client.as(client.which, client.other); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// KubernetesCredentials makes an administrator's certificate for the API servers of a cluster
// that outlives a delivery.
func KubernetesCredentials(bundle *secrets.Bundle, others ...*secrets.Bundle) (*Credentials, error) {
	failed := func(err error) (*Credentials, error) {
		return nil, fmt.Errorf("make Kubernetes client certificate: %w", err)
	}
	ca, err := talosx509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.K8s)
	if err != nil {
		return failed(err)
	}
	now := bundle.Clock.Now()
	pair, err := talosx509.NewKeyPair(ca,
		talosx509.CommonName(plan.FunctionName), talosx509.Organization("system:masters"),
		talosx509.NotBefore(now.Add(-time.Minute)), talosx509.NotAfter(now.Add(clientLifetime)),
		talosx509.KeyUsage(stdx509.KeyUsageDigitalSignature), talosx509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}))
	if err != nil {
		return failed(err)
	}
	a := &Credentials{certificate: *pair.Certificate}
	for _, b := range append([]*secrets.Bundle{bundle}, others...) {
		authority, err := b.Certs.K8s.GetCert()
		if err != nil {
			return failed(errors.New("the cluster's authority is no certificate"))
		}
		a.authorities = append(a.authorities, authority)
	}
	return a, nil
}

// Observe completes n with what a node shows to clients of the present and of the next
// authorities. port is that of the API server, and nodeReady is whether the Node is Ready.
func (r *RotationClients) Observe(ctx context.Context, k *Keys, address string, port int32, nodeReady bool, n *plan.RotatingNode) {
	kubelet := false
	read := func(ctx context.Context, node *client.Client) error {
		active, err := safe.StateGetByID[*resources.MachineConfig](ctx, node.COSI, resources.ActiveID)
		if err != nil {
			return err
		}
		changed, err := k.withAuthorities(active.Provider())
		if err != nil {
			return err
		}
		n.Current = changed == nil
		kubelet = isServiceHealthy(ctx, node, "kubelet")
		return nil
	}
	served, err := AskTalos(ctx, address, r.talos.next, read)
	if n.Talos.AcceptsNext = err == nil; !n.Talos.AcceptsNext {
		served, err = AskTalos(ctx, address, r.talos.present, read)
		n.Talos.AcceptsPresent = err == nil
	} else {
		_, err = AskTalos(ctx, address, r.talos.present, func(context.Context, *client.Client) error { return nil })
		n.Talos.AcceptsPresent = err == nil
	}
	n.Answers = n.Talos.AcceptsNext || n.Talos.AcceptsPresent
	n.Talos.ServesNext = served != nil && served.CheckSignatureFrom(r.talos.next.authorities[0]) == nil
	n.Ready = kubelet && nodeReady
	if n.ControlPlane {
		host := net.JoinHostPort(address, strconv.Itoa(int(port)))
		served, n.Kubernetes.AcceptsNext = AskKubernetes(ctx, host, r.kubernetes.next)
		_, n.Kubernetes.AcceptsPresent = AskKubernetes(ctx, host, r.kubernetes.present)
		n.Kubernetes.ServesNext = served != nil && served.CheckSignatureFrom(r.kubernetes.next.authorities[0]) == nil
		n.Answers = n.Answers && (n.Kubernetes.AcceptsNext || n.Kubernetes.AcceptsPresent || n.Current)
	}
}

// AskTalos calls a node, and returns the certificate that it serves.
func AskTalos(ctx context.Context, address string, a *Credentials, call func(context.Context, *client.Client) error) (*stdx509.Certificate, error) {
	var served *stdx509.Certificate
	config := a.TLSConfig()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		served = state.PeerCertificates[0]
		return nil
	}
	ctx, node, end, err := Dial(ctx, address, config, DialTimeout)
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := node.Version(ctx); err != nil {
		return nil, fmt.Errorf("read version of %s: %w", address, err)
	}
	return served, call(ctx, node)
}

// AskKubernetes lists a Node of an API server, which only an accepted client may. It returns the
// certificate that is served, and whether the client is accepted.
func AskKubernetes(ctx context.Context, host string, a *Credentials) (*stdx509.Certificate, bool) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	through := &http.Transport{TLSClientConfig: a.TLSConfig(), DialContext: outbound.FromEnvironment().DialContext}
	defer through.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/api/v1/nodes?limit=1", nil)
	if err != nil {
		return nil, false
	}
	res, err := (&http.Client{Transport: through, CheckRedirect: outbound.Stay}).Do(req)
	if err != nil {
		return nil, false
	}
	defer func() { _ = res.Body.Close() }()
	return res.TLS.PeerCertificates[0], res.StatusCode == http.StatusOK
}

// isServiceHealthy reports whether a service of a node runs and is healthy.
func isServiceHealthy(ctx context.Context, node *client.Client, name string) bool {
	info, err := node.ServiceInfo(ctx, name)
	return err == nil && len(info) > 0 && info[0].Service.GetState() == "Running" && info[0].Service.GetHealth().GetHealthy()
}

// ChangeAuthorities gives nodes, by name and address, the authorities that the keys have in
// their phase, and changes nothing else. A node that does not answer is left to the next call.
func (r *RotationClients) ChangeAuthorities(ctx context.Context, k *Keys, addresses map[string]string) error {
	var group errgroup.Group
	for name, address := range addresses {
		group.Go(func() error {
			var refused reconcile.UserError
			for _, client := range []*Credentials{r.talos.next, r.talos.present} {
				_, err := AskTalos(ctx, address, client, k.ChangeNode)
				if errors.As(err, &refused) {
					return reconcile.UserError{Reason: refused.Reason, Message: fmt.Sprintf("node %s: %s", name, refused.Message)}
				}
				if err == nil {
					break
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// ChangeNode gives a node the authorities of the phase in the configuration that it runs. Talos
// applies them without a reboot.
func (k *Keys) ChangeNode(ctx context.Context, node *client.Client) error {
	active, err := safe.StateGetByID[*resources.MachineConfig](ctx, node.COSI, resources.ActiveID)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	changed, err := k.withAuthorities(active.Provider())
	if err != nil || changed == nil {
		return err
	}
	err = applyConfig(ctx, node, changed, machine.ApplyConfigurationRequest_NO_REBOOT)
	if status.Code(err) == codes.InvalidArgument {
		return reconcile.UserError{Reason: "RotationRefused", Message: "it does not accept other authorities: " + status.Convert(err).Message()}
	}
	return err
}
