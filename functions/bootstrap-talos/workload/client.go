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

	"github.com/vitistack/stack/functions/internal/kube"
)

// Client is a cluster's own API, spoken to as its administrator.
type Client struct {
	Http *http.Client
	// Hosts are where it is served: the endpoint, and then the control planes
	// themselves, since an endpoint of one node goes with that node.
	Hosts []string
	mu    sync.Mutex
}

// Connect connects by the kubeconfig that a node has handed out, and where its
// endpoint is out of reach at the addresses of control planes. Whoever opens it
// closes it.
func Connect(kubeconfig []byte, port int32, controlPlanes ...string) (*Client, error) {
	config, err := kube.ReadKubeconfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	client, err := kube.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to workload API: %w", err)
	}
	w := &Client{Http: client, Hosts: []string{config.Host}}
	for _, address := range controlPlanes {
		if host := "https://" + net.JoinHostPort(address, strconv.Itoa(int(port))); host != config.Host {
			w.Hosts = append(w.Hosts, host)
		}
	}
	return w, nil
}

func (w *Client) Close() { w.Http.CloseIdleConnections() }

// At is the same API on another address, such as that of one control plane.
func (w *Client) At(host string) *Client { return &Client{Http: w.Http, Hosts: []string{host}} }

// StatusError is an answer of a workload API that is no success.
type StatusError struct {
	Code    int
	Message string
}

func (r StatusError) Error() string {
	return fmt.Sprintf("the workload API answered %d: %s", r.Code, r.Message)
}

// requestTimeout is the deadline of one request.
const requestTimeout = 5 * time.Second

// maxAnswer bounds what is read of a workload API, which may be any server.
const maxAnswer = 32 << 20

// call sends a request with a JSON body, unless in is nil, to the first host that
// can be reached, and decodes the answer into out, unless that is nil. Its error is
// a refusal where the API has answered.
func (w *Client) call(ctx context.Context, method, path, media string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	w.mu.Lock()
	hosts := slices.Clone(w.Hosts)
	w.mu.Unlock()
	var err error
	for i, host := range hosts {
		if err = w.ask(ctx, method, host+path, media, body, out); err == nil || errors.As(err, new(StatusError)) {
			hosts[0], hosts[i] = hosts[i], hosts[0]
			w.mu.Lock()
			w.Hosts = hosts
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
	res, err := w.Http.Do(req)
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
