package kube

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/vitistack/stack/apis/kubeconfig"
	"github.com/vitistack/stack/events/outbound"
)

// ReadKubeconfig reads a kubeconfig of a tenant. It runs and reads nothing that the
// kubeconfig names. Its error is one of kubeconfig.Load.
func ReadKubeconfig(document []byte) (*rest.Config, error) {
	file, err := kubeconfig.Load(document)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, file.CurrentContext, nil, nil).ClientConfig()
	if err != nil {
		return nil, kubeconfig.ErrInvalid
	}
	return config, nil
}

// dial is one for all clients, since client-go keeps connections by it.
var dial = &transport.DialHolder{Dial: outbound.FromEnvironment().DialContext}

// HTTPClientFor is rest.HTTPClientFor for an API server that an object or a Secret names: the
// outbound rules have to allow it, and no redirect is followed.
func HTTPClientFor(config *rest.Config) (*http.Client, error) {
	settings, err := config.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	settings.DialHolder = dial
	through, err := transport.New(settings)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &http.Client{
		Transport: through, Timeout: config.Timeout,
		CheckRedirect: outbound.Stay,
	}, nil
}
