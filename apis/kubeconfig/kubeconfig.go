// Package kubeconfig reads kubeconfigs that a tenant may have written.
package kubeconfig

import (
	"errors"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Errors of a kubeconfig. They do not quote it, because it has secrets.
var (
	// ErrInvalid is the error of a document that is not a kubeconfig.
	ErrInvalid = errors.New("it is not a kubeconfig with a current context")
	// ErrReachesHere is the error of a kubeconfig that names programs or files. Its reader would run or read them, a
	// function its own token among them.
	ErrReachesHere = errors.New("it names a program or a file")
)

// Load reads a kubeconfig that has all its certificates, keys and tokens in itself. It runs and reads nothing that the
// kubeconfig names. Its error is ErrInvalid or ErrReachesHere.
func Load(kubeconfig []byte) (*clientcmdapi.Config, error) {
	file, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, ErrInvalid
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
	return file, nil
}
