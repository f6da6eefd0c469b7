package engine

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// tokenSeconds is the lifetime of a ServiceAccount's token. A start after half of it renews the token.
const tokenSeconds = 48 * 60 * 60

// identities provides programs with the credentials of their ServiceAccounts, as a kubelet would.
type identities struct {
	cluster *cluster
	state   *state
	server  string // URL

	mu    sync.Mutex
	renew map[string]time.Time // by path of the kubeconfig
}

// newIdentities returns the identities of a server. nil is the cluster's own.
func newIdentities(c *cluster, s *state, server *url.URL) (*identities, error) {
	if err := os.MkdirAll(s.path("kubeconfigs"), 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of kubeconfigs: %w", err)
	}
	host := c.config.Host
	if server != nil {
		host = server.String()
	}
	return &identities{cluster: c, state: s, server: host, renew: map[string]time.Time{}}, nil
}

// kubeconfig returns the path of a kubeconfig with a token of the ServiceAccount. The first call of a run requests a new token. Later calls keep it for
// half of its lifetime.
func (i *identities) kubeconfig(ctx context.Context, namespace, name string) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	path := i.state.path("kubeconfigs", namespace+"_"+name)
	if time.Now().Before(i.renew[path]) {
		return path, nil
	}
	seconds := int64(tokenSeconds)
	token, err := i.cluster.typed.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("request a token: ServiceAccount %s/%s does not exist: create it, or correct serviceAccountName", namespace, name)
	}
	if err != nil {
		return "", fmt.Errorf("request a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	user := api.AuthInfo{Token: token.Status.Token}
	if err := writeKubeconfig(path, i.server, i.cluster.config.CAFile, namespace, user); err != nil {
		return "", err
	}
	i.renew[path] = time.Now().Add(time.Until(token.Status.ExpirationTimestamp.Time) / 2)
	return path, nil
}

// writeKubeconfig writes a file for one user of the API server, readable by its owner only.
func writeKubeconfig(path, server, caFile, namespace string, user api.AuthInfo) error {
	const name = "vitistack-local"
	config := api.NewConfig()
	config.Clusters[name] = &api.Cluster{Server: server, CertificateAuthority: caFile}
	config.AuthInfos[name] = &user
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	config.CurrentContext = name
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writeFile(path, text, 0o600)
}
