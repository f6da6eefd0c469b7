package talos

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	talosx509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/apis/kubeconfig"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/talosconfig"
)

// IsTalosconfigCurrent reports whether a talosconfig has less than half of its lifetime behind
// it, names exactly these nodes, and has the authorities of the keys in their phase.
func IsTalosconfigCurrent(data []byte, endpoints []string, k *Keys, now time.Time) bool {
	c, err := talosconfig.Read(data)
	return err == nil && slices.Equal(c.Endpoints, endpoints) && SameCertificates(c.CA, k.TrustedTalos()) && isFresh(c.Crt, k.issuer().Certs.OS, now)
}

// IsKubeconfigCurrent reports whether a kubeconfig has less than half of its lifetime behind it,
// names the endpoint, and has the authorities of the keys in their phase.
func IsKubeconfigCurrent(data []byte, endpoint string, k *Keys, now time.Time) bool {
	config, err := kube.ReadKubeconfig(data)
	return err == nil && config.Host == endpoint && SameCertificates(config.CAData, k.TrustedKubernetes()) && isFresh(config.CertData, k.issuer().Certs.K8s, now)
}

// isFresh reports whether the authority has signed a certificate, and less than half of its
// lifetime is over.
func isFresh(certificate []byte, authority *talosx509.PEMEncodedCertificateAndKey, now time.Time) bool {
	all := parseCertificates(certificate)
	by, err := authority.GetCert()
	return err == nil && len(all) > 0 && all[0].CheckSignatureFrom(by) == nil && now.Before(all[0].NotBefore.Add(all[0].NotAfter.Sub(all[0].NotBefore)/2))
}

// SameCertificates reports whether two PEM files have the same certificates, in any order.
func SameCertificates(one, other []byte) bool {
	a, b := parseCertificates(one), parseCertificates(other)
	return len(a) == len(b) && !slices.ContainsFunc(a, func(c *x509.Certificate) bool { return !slices.ContainsFunc(b, c.Equal) })
}

// parseCertificates returns the certificates of a PEM file. Blocks that are no certificate are
// left out.
func parseCertificates(file []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// RenderKubeconfig returns a kubeconfig with another endpoint and other authorities: a node
// names those of its own configuration, which may be a phase behind.
func RenderKubeconfig(document []byte, endpoint string, authorities []byte) ([]byte, error) {
	file, err := clientcmd.Load(document)
	if err != nil {
		return nil, kubeconfig.ErrInvalid
	}
	for _, c := range file.Clusters {
		c.Server, c.CertificateAuthorityData = endpoint, authorities
	}
	data, err := clientcmd.Write(*file)
	if err != nil {
		return nil, kubeconfig.ErrInvalid // the cause could quote a secret
	}
	return data, nil
}

// FetchKubeconfig returns an administrator's kubeconfig from a control plane.
func FetchKubeconfig(ctx context.Context, address string, a *Credentials) ([]byte, error) {
	ctx, c, end, err := Connect(ctx, address, a, ShortTimeout)
	if err != nil {
		return nil, err
	}
	defer end()
	data, err := c.Kubeconfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("fetch kubeconfig from %s: %w", address, err)
	}
	return data, nil
}

// RenderTalosconfig returns the file that talosctl reads. Its endpoints are addresses of nodes,
// because a virtual address may be down exactly when talosctl is needed.
func RenderTalosconfig(cluster string, k *Keys, endpoints []string) ([]byte, error) {
	pair, err := k.issuer().GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), TalosconfigLifetime)
	if err != nil {
		return nil, fmt.Errorf("make talosconfig: %w", err)
	}
	file := config.NewConfig(cluster, endpoints, k.TrustedTalos(), pair)
	for _, c := range file.Contexts {
		c.Nodes = endpoints
	}
	data, err := file.Bytes()
	if err != nil {
		return nil, fmt.Errorf("make talosconfig: %w", err)
	}
	return data, nil
}
