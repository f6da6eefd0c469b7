package kube

import (
	"context"
	"os"
	"strings"
)

const (
	// platformNamespace and brokerName are where the topology has the Broker.
	platformNamespace = "vitistack-system"
	brokerName        = "vitistack"
	namespaceFile     = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// Namespace returns the namespace that the function runs in: POD_NAMESPACE, or else
// the namespace of the pod's service account, or else vitistack-system.
func Namespace(getenv func(string) string) string {
	if namespace := getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	if text, err := os.ReadFile(namespaceFile); err == nil {
		return strings.TrimSpace(string(text))
	}
	return platformNamespace
}

// BrokerURL returns the address that the stack's Broker has in its status. It is empty
// as long as there is no Broker, or the Broker has no address.
func (c *Client) BrokerURL(ctx context.Context) (string, error) {
	var broker struct {
		Status struct {
			Address struct {
				URL string `json:"url"`
			} `json:"address"`
		} `json:"status"`
	}
	result := c.anyREST().Get().AbsPath("/apis/eventing.knative.dev/v1/namespaces", Namespace(os.Getenv), "brokers", brokerName).Do(ctx)
	if err := parse(result, &broker); err != nil && !NotFound(err) {
		return "", err
	}
	return broker.Status.Address.URL, nil
}

// PlatformConfigMap returns what a ConfigMap in the function's own namespace has. It is
// empty where there is no such ConfigMap.
func (c *Client) PlatformConfigMap(ctx context.Context, name string) (map[string]string, error) {
	var found struct {
		Data map[string]string `json:"data"`
	}
	result := c.anyREST().Get().AbsPath("/api/v1/namespaces", Namespace(os.Getenv), "configmaps", name).Do(ctx)
	if err := parse(result, &found); err != nil && !NotFound(err) {
		return nil, err
	}
	return found.Data, nil
}
