package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// workload is a cluster's own API, spoken to as its administrator.
type workload struct {
	http *http.Client
	host string
}

// openWorkload connects by the kubeconfig that a node has handed out. Whoever opens
// it closes it.
func openWorkload(kubeconfig []byte) (*workload, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to workload API: %w", err)
	}
	return &workload{http: client, host: config.Host}, nil
}

func (w *workload) close() { w.http.CloseIdleConnections() }

// at is the same API on another address, such as that of one control plane.
func (w *workload) at(host string) *workload { return &workload{http: w.http, host: host} }

// refusal is an answer of a workload API that is no success.
type refusal struct {
	code    int
	message string
}

func (r refusal) Error() string {
	return fmt.Sprintf("the workload API answered %d: %s", r.code, r.message)
}

// maxAnswer bounds what is read of a workload API, which may be any server.
const maxAnswer = 32 << 20

// call sends a request with a JSON body, unless in is nil, and decodes the answer
// into out, unless that is nil. Its error is a refusal where the API has answered.
func (w *workload) call(ctx context.Context, method, path, media string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, shortRPC)
	defer cancel()
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, w.host+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", media)
	}
	res, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer := io.LimitReader(res.Body, maxAnswer)
	if res.StatusCode/100 != 2 {
		var status metav1.Status
		_ = json.NewDecoder(answer).Decode(&status) // what is no Status has no message
		return refusal{code: res.StatusCode, message: status.Message}
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}

// workloadNode is a node as the cluster's own API describes it.
type workloadNode struct {
	name  string
	ready bool
	// version is the kubelet's, with v; talos the one of Talos, without.
	version, talos string
	// boot changes with each boot.
	boot string
	// cordoned is whether pods are kept from it.
	cordoned bool
}

// workloadNodes lists the nodes of a cluster through its own API.
func workloadNodes(ctx context.Context, kubeconfig []byte) ([]workloadNode, error) {
	w, err := openWorkload(kubeconfig)
	if err != nil {
		return nil, err
	}
	defer w.close()
	return w.nodes(ctx)
}

func (w *workload) nodes(ctx context.Context) ([]workloadNode, error) {
	list := &corev1.NodeList{}
	if err := w.call(ctx, http.MethodGet, "/api/v1/nodes", "", nil, list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]workloadNode, 0, len(list.Items))
	for _, item := range list.Items {
		info := item.Status.NodeInfo
		n := workloadNode{
			name: item.Name, version: info.KubeletVersion, talos: talosOf(info.OSImage), boot: info.BootID,
			cordoned: item.Spec.Unschedulable,
		}
		for _, c := range item.Status.Conditions {
			if c.Type == corev1.NodeReady {
				n.ready = c.Status == corev1.ConditionTrue
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// talosOf reads the version out of "Talos (v1.13.9)", which is how a node names its
// operating system.
func talosOf(image string) string {
	version, found := strings.CutPrefix(image, "Talos (v")
	if !found {
		return ""
	}
	return strings.TrimSuffix(version, ")")
}

// version is the Kubernetes version of the API server that answers, without v.
func (w *workload) version(ctx context.Context) (string, error) {
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := w.call(ctx, http.MethodGet, "/version", "", nil, &info); err != nil {
		return "", fmt.Errorf("read version: %w", err)
	}
	return strings.TrimPrefix(info.GitVersion, "v"), nil
}

// cordon keeps new pods from a node, or lets them come again.
func (w *workload) cordon(ctx context.Context, node string, on bool) error {
	patch := map[string]any{"spec": map[string]any{"unschedulable": on}}
	err := w.call(ctx, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(node), "application/merge-patch+json", patch, nil)
	if err != nil {
		return fmt.Errorf("cordon node %s: %w", node, err)
	}
	return nil
}
