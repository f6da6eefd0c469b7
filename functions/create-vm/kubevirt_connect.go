package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// kubeconfigKey is the key of the Secret of a KubeVirt in another cluster.
const kubeconfigKey = "kubeconfig"

// local returns the KubeVirt of the cluster that the function runs in.
func local(home *kube.Client) *kubevirt { return &kubevirt{home: home, guests: home, owned: true} }

// connectKubeVirt returns the hypervisor of a MachineProvider of type kubevirt: this cluster,
// or that of the kubeconfig in its credentials.
func connectKubeVirt(ctx context.Context, read credentials, p *v1alpha1.MachineProvider, wrap transport) (hypervisor, error) {
	k := local(read.home)
	k.provider, k.defaults = p.Name, defaultsOf(p)
	if p.Spec.KubeVirt != nil {
		k.options = *p.Spec.KubeVirt
	}
	if p.Spec.CredentialsRef == nil {
		if p.Spec.Endpoint != nil && p.Spec.Endpoint.URL != "" {
			_, err := read.of(ctx, p)
			return nil, err
		}
		return k, nil
	}
	data, err := read.of(ctx, p)
	if err != nil {
		return nil, err
	}
	config, err := remoteConfig(p, data[kubeconfigKey])
	if err != nil {
		return nil, err
	}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		if wrap == nil {
			return rt
		}
		return wrap(rt)
	})
	k.owned = false
	k.guests, err = kube.NewElsewhere(config, functionName, kinds...)
	if err != nil {
		return nil, unusable(p, "the cluster of its kubeconfig cannot be reached with it: check its certificates and keys")
	}
	return k, nil
}

// remoteConfig reads a kubeconfig. The endpoint of the MachineProvider overrides its server.
func remoteConfig(p *v1alpha1.MachineProvider, kubeconfig []byte) (*rest.Config, error) {
	if len(kubeconfig) == 0 {
		return nil, unusable(p, "it has no key "+kubeconfigKey+": add the kubeconfig of the KubeVirt cluster under it")
	}
	config, err := kube.ReadKubeconfig(kubeconfig)
	switch {
	case errors.Is(err, kube.ErrReachesHere):
		return nil, unusable(p, "its kubeconfig names a program or a file: write token, certificates and keys into it")
	case err != nil:
		return nil, unusable(p, "its key "+kubeconfigKey+" is not a kubeconfig with a current context: write one as kubectl config view --flatten --minify does")
	}
	t := &config.TLSClientConfig
	config.QPS = -1
	const patience = 10 * time.Second
	config.Timeout = patience
	if e := p.Spec.Endpoint; e != nil {
		if e.URL != "" {
			config.Host = e.URL
		}
		if e.CABundle != "" {
			t.CAData = []byte(e.CABundle)
		}
		if e.InsecureSkipVerify {
			t.Insecure, t.CAData = true, nil
		}
		if e.TimeoutSeconds > 0 {
			config.Timeout = time.Duration(e.TimeoutSeconds) * time.Second
		}
	}
	return config, nil
}

func unusable(p *v1alpha1.MachineProvider, why string) error {
	return reconcile.UserError{Reason: "CredentialsInvalid", Message: fmt.Sprintf("Secret %s/%s of MachineProvider %s: %s", p.Spec.CredentialsRef.Namespace, p.Spec.CredentialsRef.Name, p.Name, why)}
}
