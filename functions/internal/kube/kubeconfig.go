package kube

import (
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/vitistack/stack/events/outbound"
)

// Errors of a kubeconfig. They do not quote it, because it has secrets.
var (
	// ErrNotKubeconfig is the error of a document that is not a kubeconfig with a current
	// context.
	ErrNotKubeconfig = errors.New("it is not a kubeconfig with a current context")
	// ErrReachesHere is the error of a kubeconfig that names programs or files. The
	// function would run or read them, its own token among them.
	ErrReachesHere = errors.New("it names a program or a file")
)

// ReadKubeconfig reads a kubeconfig of a tenant. It runs and reads nothing that the
// kubeconfig names. Its error is ErrNotKubeconfig or ErrReachesHere.
func ReadKubeconfig(kubeconfig []byte) (*rest.Config, error) {
	file, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, ErrNotKubeconfig
	}
	for _, u := range file.AuthInfos {
		if u == nil || u.Exec != nil || u.AuthProvider != nil || u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "" {
			return nil, ErrReachesHere
		}
	}
	for _, c := range file.Clusters {
		if c == nil || c.CertificateAuthority != "" {
			return nil, ErrReachesHere
		}
	}
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, file.CurrentContext, nil, nil).ClientConfig()
	if err != nil {
		return nil, ErrNotKubeconfig
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
