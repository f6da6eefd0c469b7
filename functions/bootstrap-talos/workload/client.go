// Package workload calls the API of a workload cluster: nodes, their
// labels and taints, drains, and the addons of Talos. It has a client of its own, because the
// control planes have to be asked at their own addresses while the endpoint does not answer.
package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/functions/internal/kube"
)

// Client is a client of the API of a workload cluster, as its administrator.
type Client struct {
	http *http.Client
	// hosts are the URLs of the API: the endpoint, and then the control planes, because an
	// endpoint may be a node that is removed.
	hosts []string
	// resources are the API resources that discovery has returned, by kind.
	resources map[schema.GroupVersionKind]metav1.APIResource
	mu        sync.Mutex
}

// Connect returns a client for a kubeconfig. If its endpoint is out of reach, requests go to the
// addresses of the control planes, at port. The caller has to close it.
func Connect(kubeconfig []byte, port int32, controlPlanes ...string) (*Client, error) {
	config, err := kube.ReadKubeconfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := kube.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to workload API: %w", err)
	}
	w := &Client{http: client, hosts: []string{config.Host}}
	for _, address := range controlPlanes {
		if host := "https://" + net.JoinHostPort(address, strconv.Itoa(int(port))); host != config.Host {
			w.hosts = append(w.hosts, host)
		}
	}
	return w, nil
}

// Close closes the idle connections.
func (w *Client) Close() { w.http.CloseIdleConnections() }

// New returns a client of an API that is served at these URLs. It prefers the first one.
func New(client *http.Client, hosts ...string) *Client { return &Client{http: client, hosts: hosts} }

// At returns a client of the same API at another URL, such as that of one control plane.
func (w *Client) At(host string) *Client { return &Client{http: w.http, hosts: []string{host}} }

// StatusError is an answer of a workload API other than success.
type StatusError struct {
	Code    int
	Message string
}

func (r StatusError) Error() string {
	return fmt.Sprintf("the workload API answered %d: %s", r.Code, r.Message)
}

// requestTimeout is the deadline of one request.
const requestTimeout = 5 * time.Second

// maxAnswer is the number of bytes that are read of an answer, because the API may be any
// server.
const maxAnswer = 32 << 20

// call sends a request with a JSON body, unless in is nil, to the first host that answers, and
// decodes the answer into out, unless that is nil. An answer other than success is a
// StatusError.
func (w *Client) call(ctx context.Context, method, path, media string, in, out any) error {
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
		if err = w.ask(ctx, method, host+path, media, body, out); err == nil || errors.As(err, new(StatusError)) {
			hosts[0], hosts[i] = hosts[i], hosts[0]
			w.mu.Lock()
			w.hosts = hosts
			w.mu.Unlock()
			break
		}
	}
	return err
}

func (w *Client) ask(ctx context.Context, method, target, media string, body []byte, out any) error {
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
		return StatusError{Code: res.StatusCode, Message: message}
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(answer).Decode(out); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	return nil
}
