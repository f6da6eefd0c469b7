package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/tests/stand/feed"
	"github.com/vitistack/stack/tests/stand/port"
	"github.com/vitistack/stack/tests/stand/process"
)

// TestProcesses requests a thousand addresses at once from eight processes of the function, with a
// pool of exactly that size.
func TestProcesses(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	const processes, holders = 8, 1000
	deliver := s.processes(processes)
	feed.Run(t, s.config, s.namespace, deliver,
		feed.Kind{Resource: v1alpha1.GroupVersion.WithResource("networkconfigurations"), Name: "NetworkConfiguration"},
		feed.Kind{Resource: v1alpha2.GroupVersion.WithResource("ipallocations"), Name: "IPAllocation"},
	)
	s.network("net", "10.0.0.0/22", "", v1alpha2.StaticPool{})
	began := time.Now()
	var group sync.WaitGroup
	for worker := range processes {
		group.Go(func() {
			for i := worker; i < holders; i += processes {
				s.configuration(fmt.Sprintf("c%03d", i), "net", eth0())
			}
		})
	}
	group.Wait()
	feed.Until(t, "every NetworkConfiguration has an address", func() (bool, string) {
		time.Sleep(200 * time.Millisecond) // the list is long
		waiting := &v1alpha1.NetworkConfigurationList{}
		options := metav1.ListOptions{FieldSelector: "status.phase!=Ready"}
		if err := s.kube.ListPage(t.Context(), s.namespace, options, waiting); err != nil {
			return false, err.Error()
		}
		return len(waiting.Items) == 0, fmt.Sprintf("%d of %d have no address", len(waiting.Items), holders)
	})
	took := time.Since(began)
	t.Logf("%d addresses in %.1f s: %.0f in a second", holders, took.Seconds(), holders/took.Seconds())
	if n := s.requireConsistentLeases(); n != holders {
		t.Errorf("%d addresses for %d holders", n, holders)
	}
}

// processes starts the function's program n times, and returns a function that delivers events to them
// in turn. Events that they send are delivered to them too.
func (s *env) processes(n int) func(context.Context, event.Event) (*event.Event, error) {
	s.Helper()
	dir := s.TempDir()
	program, kubeconfig := filepath.Join(dir, name), filepath.Join(dir, "kubeconfig")
	if out, err := exec.CommandContext(s.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		s.Fatalf("build: %v\n%s", err, out)
	}
	s.writeKubeconfig(kubeconfig)
	var urls []string
	var turn atomic.Int64
	deliver := func(ctx context.Context, e event.Event) (*event.Event, error) {
		return nil, post(ctx, urls[int(turn.Add(1))%n], e)
	}
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := cehttp.NewEventFromHTTPRequest(r)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		go func() { _, _ = deliver(s.Context(), *e) }()
		w.WriteHeader(http.StatusAccepted)
	}))
	s.Cleanup(sink.Close)
	for i := range n {
		kept, err := port.Keep(0)
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(kept.Close)
		command := exec.Command(program)
		command.Env = append(os.Environ(), "PORT="+strconv.Itoa(kept.Number), "KUBECONFIG="+kubeconfig, "K_SINK="+sink.URL, "LOG_LEVEL=error")
		p, err := process.Start(command, filepath.Join(dir, fmt.Sprintf("log%d", i)))
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(p.Kill)
		url := fmt.Sprintf("http://127.0.0.1:%d", kept.Number)
		feed.Until(s.T, "a process is ready", func() (bool, string) {
			res, err := http.Get(url + "/readyz")
			if err != nil {
				return false, err.Error()
			}
			_ = res.Body.Close()
			return res.StatusCode == http.StatusOK, res.Status
		})
		urls = append(urls, url)
	}
	return deliver
}

func post(ctx context.Context, url string, e event.Event) error {
	req, err := cehttp.NewHTTPRequestFromEvent(ctx, url, e)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the function answered %s", res.Status)
	}
	return nil
}

func (s *env) writeKubeconfig(path string) {
	s.Helper()
	tls := s.config.TLSClientConfig
	config := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: s.config.Host, CertificateAuthorityData: tls.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: tls.CertData, ClientKeyData: tls.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}
	if err := clientcmd.WriteToFile(config, path); err != nil {
		s.Fatal(err)
	}
}
