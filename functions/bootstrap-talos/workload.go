package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// workloadNode is a node as the cluster's own API describes it.
type workloadNode struct {
	name    string
	ready   bool
	version string
}

// maxNodeList bounds what is read of a workload API, which may be any server.
const maxNodeList = 32 << 20

// workloadNodes lists the nodes of a cluster through its own API.
func workloadNodes(ctx context.Context, kubeconfig []byte) ([]workloadNode, error) {
	ctx, cancel := context.WithTimeout(ctx, shortRPC)
	defer cancel()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to workload API: %w", err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/api/v1/nodes", nil)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("list nodes: the workload API answered %s", res.Status)
	}
	return decodeNodes(io.LimitReader(res.Body, maxNodeList))
}

func decodeNodes(r io.Reader) ([]workloadNode, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
			Status struct {
				Conditions []struct{ Type, Status string } `json:"conditions"`
				NodeInfo   struct {
					KubeletVersion string `json:"kubeletVersion"`
				} `json:"nodeInfo"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := json.NewDecoder(r).Decode(&list); err != nil {
		return nil, fmt.Errorf("decode nodes: %w", err)
	}
	nodes := make([]workloadNode, 0, len(list.Items))
	for _, item := range list.Items {
		n := workloadNode{name: item.Metadata.Name, version: item.Status.NodeInfo.KubeletVersion}
		for _, c := range item.Status.Conditions {
			if c.Type == "Ready" {
				n.ready = c.Status == "True"
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}
