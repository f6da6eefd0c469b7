package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"time"

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
		func(data []byte) bool { return talosconfigServes(data, endpoints, f.now()) },
		func() ([]byte, error) { return renderTalosconfig(c.Name, c.bundle, endpoints) })
	if err != nil {
		return err
	}
	c.kubeconfig, err = f.keepSecret(ctx, c.KubernetesCluster, kubeconfigSecret, kubeconfigKey,
		func(data []byte) bool { return kubeconfigServes(data, c.Status.Endpoint, f.now()) },
		func() ([]byte, error) { return f.askForKubeconfig(ctx, c) })
	return err
}

// talosconfigServes tells whether a talosconfig is good for a while, and names
// exactly these nodes.
func talosconfigServes(data []byte, endpoints []string, now time.Time) bool {
	c, err := talosconfig.Read(data)
	return err == nil && slices.Equal(c.Endpoints, endpoints) && fresh(c.Crt, now)
}

// kubeconfigServes tells whether a kubeconfig is good for a while, and names the
// endpoint.
func kubeconfigServes(data []byte, endpoint string, now time.Time) bool {
	config, err := kube.ReadKubeconfig(data)
	return err == nil && config.Host == endpoint && fresh(config.CertData, now)
}

// fresh tells whether less than half of a certificate's lifetime is over.
func fresh(certificate []byte, now time.Time) bool {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return false
	}
	c, err := x509.ParseCertificate(block.Bytes)
	return err == nil && now.Before(c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore)/2))
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
			return pointed(data, c.Status.Endpoint)
		}
	}
	return nil, waits{reason: "WaitingForKubeconfig", message: fmt.Sprintf("waits for node %s to hand out a kubeconfig", names[0]), silent: true}
}

// pointed is a kubeconfig that names an endpoint: a node names the one that its own
// configuration has, which may be a step behind.
func pointed(kubeconfig []byte, endpoint string) ([]byte, error) {
	file, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, kube.ErrNotKubeconfig
	}
	for _, c := range file.Clusters {
		c.Server = endpoint
	}
	data, err := clientcmd.Write(*file)
	if err != nil {
		return nil, kube.ErrNotKubeconfig // the cause could quote a secret
	}
	return data, nil
}
