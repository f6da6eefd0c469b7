// Package restconfig finds the API server for functions and the gateway.
package restconfig

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load returns how to connect to the API server in the file KUBECONFIG, or else to the one of the pod's ServiceAccount.
// userAgent names the program in the logs of the API server. The client-side rate limit is off, because the API server has
// API Priority and Fairness.
func Load(userAgent string) (*rest.Config, error) {
	load := rest.InClusterConfig
	if path := os.Getenv("KUBECONFIG"); path != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", path) }
	}
	config, err := load()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w (set KUBECONFIG outside a cluster)", err)
	}
	config.UserAgent, config.QPS = userAgent, -1
	return config, nil
}
