package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/functions/internal/kube"
)

// workload is a cluster's own API, spoken to as its administrator.
type workload struct {
	http *http.Client
	// hosts are where it is served: the endpoint, and then the control planes
	// themselves, since an endpoint of one node goes with that node.
	hosts []string
	mu    sync.Mutex
}

// openWorkload connects by the kubeconfig that a node has handed out, and where its
// endpoint is out of reach at the addresses of control planes. Whoever opens it
// closes it.
func openWorkload(kubeconfig []byte, port int32, controlPlanes ...string) (*workload, error) {
	config, err := kube.ReadKubeconfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := kube.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to workload API: %w", err)
	}
	w := &workload{http: client, hosts: []string{config.Host}}
	for _, address := range controlPlanes {
		if host := "https://" + net.JoinHostPort(address, strconv.Itoa(int(port))); host != config.Host {
			w.hosts = append(w.hosts, host)
		}
	}
	return w, nil
}

func (w *workload) close() { w.http.CloseIdleConnections() }

// at is the same API on another address, such as that of one control plane.
func (w *workload) at(host string) *workload { return &workload{http: w.http, hosts: []string{host}} }

// refusal is an answer of a workload API that is no success.
type refusal struct {
	code    int
	message string
}

func (r refusal) Error() string {
	return fmt.Sprintf("the workload API answered %d: %s", r.code, r.message)
}

// requestTimeout is the deadline of one request.
const requestTimeout = 5 * time.Second

// maxAnswer bounds what is read of a workload API, which may be any server.
const maxAnswer = 32 << 20

// call sends a request with a JSON body, unless in is nil, to the first host that
// can be reached, and decodes the answer into out, unless that is nil. Its error is
// a refusal where the API has answered.
func (w *workload) call(ctx context.Context, method, path, media string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	w.mu.Lock()
	hosts := slices.Clone(w.hosts)
	w.mu.Unlock()
	var err error
	for i, host := range hosts {
		if err = w.ask(ctx, method, host+path, media, body, out); err == nil || errors.As(err, new(refusal)) {
			hosts[0], hosts[i] = hosts[i], hosts[0]
			w.mu.Lock()
			w.hosts = hosts
			w.mu.Unlock()
			break
		}
	}
	return err
}

func (w *workload) ask(ctx context.Context, method, target, media string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if media != "" {
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
		message := status.Message
		if status.Details != nil && len(status.Details.Causes) > 0 {
			message += " " + status.Details.Causes[0].Message
		}
		return refusal{code: res.StatusCode, message: message}
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
	// labels, annotations and taints are those of the Node, whoever set them.
	labels, annotations map[string]string
	taints              []corev1.Taint
}

// nodes lists the nodes of the cluster.
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
			cordoned: item.Spec.Unschedulable, labels: item.Labels, annotations: item.Annotations, taints: item.Spec.Taints,
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
	return w.patchNode(ctx, node, map[string]any{"spec": map[string]any{"unschedulable": on}})
}

// patchNode changes a Node by a JSON merge patch (RFC 7396).
func (w *workload) patchNode(ctx context.Context, node string, fields map[string]any) error {
	err := w.call(ctx, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(node), "application/merge-patch+json", fields, nil)
	if err != nil {
		return fmt.Errorf("change node %s: %w", node, err)
	}
	return nil
}

// deleteNode deletes a Node. That it is gone is success.
func (w *workload) deleteNode(ctx context.Context, node string) error {
	err := w.call(ctx, http.MethodDelete, "/api/v1/nodes/"+url.PathEscape(node), "", nil, nil)
	if r := (refusal{}); errors.As(err, &r) && r.code == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete node %s: %w", node, err)
	}
	return nil
}
