package apiserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/tests/stand/process"
)

// etcdSocket is where etcd listens in its working directory. etcd chooses the name.
const etcdSocket = "etcd.sock"

// start starts etcd and kube-apiserver in a folder of their own.
func start(ctx context.Context) (*Server, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	if err := removeAbandoned(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", folderPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return nil, err
	}
	keys, err := writeKeys(dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write keys: %w", err), os.RemoveAll(dir))
	}
	etcd, err := startEtcd(ctx, binary, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	server, address, err := startServer(binary, dir)
	if err != nil {
		etcd.Kill()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop := func() {
		server.Kill()
		etcd.Kill()
		_ = os.RemoveAll(dir)
	}
	config := &rest.Config{
		Host:            "https://" + address,
		TLSClientConfig: rest.TLSClientConfig{CAData: keys.ca, CertData: keys.clientCert, KeyData: keys.clientKey},
		QPS:             -1,
	}
	if err := waitReady(ctx, config, server, etcd); err != nil {
		stop()
		return nil, err
	}
	return &Server{config: config, stop: stop}, nil
}

// startEtcd returns once etcd serves. etcd then writes one byte to its first extra file.
func startEtcd(ctx context.Context, binary, dir string) (*process.Process, error) {
	ready, readyWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ready.Close() }()
	p, err := spawn(binary, dir, readyWriter, "etcd", "--data-dir=etcd")
	_ = readyWriter.Close()
	if err != nil {
		return nil, fmt.Errorf("run %s etcd: %w", binary, err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = ready.SetReadDeadline(deadline)
	}
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		p.Kill()
		return nil, fmt.Errorf("etcd does not get ready: %w\n%s", err, p.Tail())
	}
	return p, nil
}

// startServer starts kube-apiserver on a free port. It inherits the listening socket as its first
// extra file, so that no other process can take the port.
func startServer(binary, dir string) (p *process.Process, address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = listener.Close() }()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = socket.Close() }()
	p, err = spawn(binary, dir, socket, append([]string{"kube-apiserver"}, serverFlags()...)...)
	if err != nil {
		return nil, "", fmt.Errorf("run %s kube-apiserver: %w", binary, err)
	}
	return p, listener.Addr().String(), nil
}

func serverFlags() []string {
	return []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--client-ca-file=" + caFile,
		"--tls-cert-file=" + serverCertFile,
		"--tls-private-key-file=" + serverKeyFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + serviceAccountKeyFile,
		"--service-account-signing-key-file=" + serviceAccountKeyFile,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=RBAC",
		"--profiling=false",
	}
}

// Binary returns the path of the binary that has etcd and kube-apiserver as subcommands.
func Binary() (string, error) {
	if path := os.Getenv("VITI_LOCAL"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("VITI_LOCAL names no binary: %w; unset it, or run make build", err)
		}
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, "vitistack", "bin", "viti-local")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no etcd and kube-apiserver at %s: run make build, or set VITI_LOCAL to a viti-local binary", path)
	}
	return path, nil
}

// waitReady returns once the server is ready and the default namespace exists, or with an error once a
// process ends.
func waitReady(ctx context.Context, config *rest.Config, server, etcd *process.Process) error {
	s := &Server{config: config}
	client, err := s.core()
	if err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var code int
		client.Get().AbsPath("/readyz").Do(ctx).StatusCode(&code)
		if code == http.StatusOK && client.Get().AbsPath("/api/v1/namespaces/default").Do(ctx).Error() == nil {
			return nil
		}
		if err := errors.Join(server.Ended(), etcd.Ended()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready: %w\n%s", ctx.Err(), server.Tail())
		case <-tick.C:
		}
	}
}

// core returns a client that sends and receives raw JSON.
func (s *Server) core() (*rest.RESTClient, error) {
	config := s.Config()
	config.GroupVersion = &schema.GroupVersion{Version: "v1"}
	config.APIPath = "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	return rest.RESTClientFor(config)
}

func suffix() string { return strings.ToLower(rand.Text()[:8]) }
