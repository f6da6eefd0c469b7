package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"time"

	talosx509 "github.com/siderolabs/crypto/x509"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/talosconfig"
)

// keepCredentials keeps the talosconfig and the kubeconfig that people use, and
// makes them anew when half of their lifetime is over, or when they name others
// than the control planes and the endpoint that there are.
func (f *function) keepCredentials(ctx context.Context, c *cluster) error {
	endpoints := slices.Sorted(maps.Values(c.controlPlanes()))
	_, err := f.keepSecret(ctx, c.KubernetesCluster, talosconfigSecret, talosconfigKey,
		func(data []byte) bool { return talosconfigServes(data, endpoints, c.keys, f.now()) },
		func() ([]byte, error) { return renderTalosconfig(c.Name, c.keys, endpoints) })
	if err != nil {
		return err
	}
	c.kubeconfig, err = f.keepSecret(ctx, c.KubernetesCluster, kubeconfigSecret, kubeconfigKey,
		func(data []byte) bool { return kubeconfigServes(data, c.Status.Endpoint, c.keys, f.now()) },
		func() ([]byte, error) { return f.askForKubeconfig(ctx, c) })
	return err
}

// talosconfigServes tells whether a talosconfig is good for a while, names exactly these
// nodes, and is of the authorities that the keys have in their phase.
func talosconfigServes(data []byte, endpoints []string, k *keys, now time.Time) bool {
	c, err := talosconfig.Read(data)
	return err == nil && slices.Equal(c.Endpoints, endpoints) && sameCertificates(c.CA, k.trustedTalos()) && fresh(c.Crt, k.issuer().Certs.OS, now)
}

// kubeconfigServes tells whether a kubeconfig is good for a while, names the endpoint, and
// is of the authorities that the keys have in their phase.
func kubeconfigServes(data []byte, endpoint string, k *keys, now time.Time) bool {
	config, err := kube.ReadKubeconfig(data)
	return err == nil && config.Host == endpoint && sameCertificates(config.CAData, k.trustedKubernetes()) && fresh(config.CertData, k.issuer().Certs.K8s, now)
}

// fresh tells whether an authority has signed a certificate, and less than half of its
// lifetime is over.
func fresh(certificate []byte, authority *talosx509.PEMEncodedCertificateAndKey, now time.Time) bool {
	all := certificates(certificate)
	by, err := authority.GetCert()
	return err == nil && len(all) > 0 && all[0].CheckSignatureFrom(by) == nil && now.Before(all[0].NotBefore.Add(all[0].NotAfter.Sub(all[0].NotBefore)/2))
}

// sameCertificates tells whether two files in PEM have the same certificates, in any order.
func sameCertificates(one, other []byte) bool {
	a, b := certificates(one), certificates(other)
	return len(a) == len(b) && !slices.ContainsFunc(a, func(c *x509.Certificate) bool { return !slices.ContainsFunc(b, c.Equal) })
}

// certificates are those of a file in PEM. What is none is left out.
func certificates(file []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// askForKubeconfig asks the control planes in turn, first the one that etcd began
// on.
func (f *function) askForKubeconfig(ctx context.Context, c *cluster) ([]byte, error) {
	addresses := c.controlPlanes()
	names := slices.Sorted(maps.Keys(addresses))
	if len(names) == 0 {
		return nil, f.waitForMachines(c)
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return pick(a == c.Status.BootstrapMachine, -1, pick(b == c.Status.BootstrapMachine, 1, 0))
	})
	for _, name := range names {
		if data, err := fetchKubeconfig(ctx, addresses[name], c.access); err == nil {
			return pointed(data, c.Status.Endpoint, c.keys.trustedKubernetes())
		}
	}
	return nil, waits{reason: "WaitingForKubeconfig", message: fmt.Sprintf("waits for node %s to hand out a kubeconfig", names[0]), silent: true}
}

// pointed is a kubeconfig that names an endpoint and trusts some authorities: a node names
// those that its own configuration has, which may be a step behind.
func pointed(kubeconfig []byte, endpoint string, authorities []byte) ([]byte, error) {
	file, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, kube.ErrNotKubeconfig
	}
	for _, c := range file.Clusters {
		c.Server, c.CertificateAuthorityData = endpoint, authorities
	}
	data, err := clientcmd.Write(*file)
	if err != nil {
		return nil, kube.ErrNotKubeconfig // the cause could quote a secret
	}
	return data, nil
}
