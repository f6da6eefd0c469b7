package knative

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// network replaces DNS, Services and the network between pods: a proxy that resolves names and Service
// addresses, and connects to them.
type network struct {
	mu     sync.Mutex
	client kubernetes.Interface
	// elsewhere has the addresses of what runs outside of pods, by namespace/name.
	elsewhere map[string]string
	// enter connects to a port of a ready pod with labels.
	enter func(ctx context.Context, namespace string, selector labels.Selector, port int) (net.Conn, error)
}

// ServeHTTP implements http.Handler: CONNECT, and requests in the form for proxies.
func (n *network) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		n.forward().ServeHTTP(w, r)
		return
	}
	to, err := n.dial(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	from, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = to.Close()
		return
	}
	if _, err := io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		_, _ = to.Close(), from.Close()
		return
	}
	join(from, to)
}

func (n *network) forward() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {},
		Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true, DisableCompression: true},
		ErrorLog:  log.New(io.Discard, "", 0),
		// An unknown name is no connection for a pod either.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// dial connects to host:port. The host is an address of this machine, the cluster address of a
// Service, or the name of a Service.
func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(host)
	if ip.IsLoopback() {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	if ip == nil {
		return n.byName(ctx, host, port)
	}
	services, err := n.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, service := range services.Items {
		if slices.Contains(service.Spec.ClusterIPs, host) {
			return n.toService(ctx, &service, port)
		}
	}
	return nil, fmt.Errorf("no Service has the address %s", host)
}

func (n *network) byName(ctx context.Context, host string, port int) (net.Conn, error) {
	parts := strings.SplitN(host, ".", 4)
	if len(parts) < 3 || parts[2] != "svc" {
		return nil, fmt.Errorf("%s is no name of this cluster", host)
	}
	n.mu.Lock()
	address, ok := n.elsewhere[parts[1]+"/"+parts[0]]
	n.mu.Unlock()
	if ok {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	service, err := n.client.CoreV1().Services(parts[1]).Get(ctx, parts[0], metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return n.byName(ctx, service.Spec.ExternalName, port)
	}
	return n.toService(ctx, service, port)
}

func (n *network) toService(ctx context.Context, service *corev1.Service, port int) (net.Conn, error) {
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return int(p.Port) == port })
	if i < 0 || len(service.Spec.Selector) == 0 {
		return nil, fmt.Errorf("port %d of Service %s/%s leads nowhere", port, service.Namespace, service.Name)
	}
	target := service.Spec.Ports[i].TargetPort.IntValue()
	if target == 0 {
		return nil, fmt.Errorf("port %d of Service %s/%s names its target; write a number", port, service.Namespace, service.Name)
	}
	return n.enter(ctx, service.Namespace, labels.SelectorFromSet(service.Spec.Selector), target)
}

// know sets the URL of something that runs outside of pods.
func (n *network) know(urls map[string]string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for name, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		n.elsewhere[name] = u.Host
	}
	return errors.Join(errs...)
}
