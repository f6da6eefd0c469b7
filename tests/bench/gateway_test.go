package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/process"
)

// gatewayStand is a gateway process with an API server in memory, so that only the gateway's costs are
// measured.
type gatewayStand struct {
	b       *testing.B
	api     *fakeapi.Server
	address string
	pid     int
	// listening and ready are the times from the start of the process.
	listening, ready time.Duration
}

// startGateway starts a gateway with a number of clusters, and as many machines in each.
func startGateway(b *testing.B, clusters, machines int, settings ...string) *gatewayStand {
	b.Helper()
	engine.Build(b)
	g := &gatewayStand{b: b, api: fakeapi.Start(b)}
	g.api.Serve("networknamespaces", "networkconfigurations", "ipallocations", "machines", "machineproviders", "kubernetesclusters", "nodes")
	for i := range clusters {
		g.putCluster(i, "Running")
		for j := range machines {
			g.api.Put(b, "machines", benchMachine(i, j))
		}
	}
	g.api.Forget()
	dir := b.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(config, []byte(strings.Replace(kubeconfig, "https://127.0.0.1:1", g.api.Config().Host, 1)), 0o600); err != nil {
		b.Fatal(err)
	}
	g.address = freeAddress(b)
	_, port, _ := net.SplitHostPort(g.address)
	command := exec.Command(filepath.Join(engine.Bin(b), "gateway"), append([]string{
		"--server.host=127.0.0.1", "--server.port=" + port, "--state.dir=" + dir, "--rateLimit.requestsPerMinute=1000000",
		"--rateLimit.burstSize=1000000", "--stream.maxClientsPerAddress=100000",
	}, settings...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+config)
	began := time.Now()
	p, err := process.Start(command, filepath.Join(dir, "gateway.log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Kill)
	g.pid = command.Process.Pid
	for g.ready == 0 {
		switch g.status("/ready") {
		case http.StatusOK:
			g.ready = time.Since(began)
			fallthrough
		case http.StatusServiceUnavailable:
			if g.listening == 0 {
				g.listening = time.Since(began)
			}
		}
		if err := p.Ended(); err != nil || time.Since(began) > time.Minute {
			b.Fatalf("the gateway is not ready: %v\n%s", err, p.Tail())
		}
		time.Sleep(time.Millisecond)
	}
	return g
}

func freeAddress(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func (g *gatewayStand) putCluster(i int, phase string) {
	c := &v1alpha1.KubernetesCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "KubernetesCluster"},
		ObjectMeta: benchMeta("cluster", i, fmt.Sprintf("cluster-%05d", i)),
	}
	c.Status.Phase = v1alpha1.ClusterPhase(phase)
	g.api.Put(g.b, "kubernetesclusters", c)
}

func benchMachine(i, j int) *v1alpha1.Machine {
	m := &v1alpha1.Machine{
		TypeMeta:   metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine"},
		ObjectMeta: benchMeta("machine", i*1000+j, fmt.Sprintf("cluster-%05d-%03d", i, j)),
	}
	m.Labels = map[string]string{v1alpha1.LabelClusterName: fmt.Sprintf("cluster-%05d", i)}
	m.Status.Phase = v1alpha1.MachineRunning
	return m
}

func benchMeta(kind string, i int, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: fmt.Sprintf("team-%03d", i%200), Name: name, UID: types.UID(fmt.Sprintf("%s-%08d", kind, i)),
		CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
}

func (g *gatewayStand) status(path string) int {
	res, err := http.Get("http://" + g.address + path)
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// cpu returns the CPU time of the process since its start.
func (g *gatewayStand) cpu() time.Duration {
	g.b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.pid))
	if err != nil {
		g.b.Fatal(err)
	}
	// The fields after the command's name, which ends with the last parenthesis.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100
}

// memory returns the present and the maximum resident memory, in megabytes.
func (g *gatewayStand) memory() (now, highest float64) {
	g.b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.pid))
	if err != nil {
		g.b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "VmRSS:":
			now = kilobytes / 1024
		case "VmHWM:":
			highest = kilobytes / 1024
		}
	}
	return now, highest
}

// BenchmarkGatewayRequests measures the gateway's CPU time for a request of the list of 1,000 clusters
// through all middleware: compressed with gzip, and answered with 304.
func BenchmarkGatewayRequests(b *testing.B) {
	g := startGateway(b, 1000, 6, "--logging.enabled=false")
	tag := g.tag()
	for name, header := range map[string]http.Header{
		"Gzip": {"Accept-Encoding": {"gzip"}},
		"304":  {"Accept-Encoding": {"gzip"}, "If-None-Match": {tag}},
	} {
		b.Run(name, func(b *testing.B) {
			before, done := g.cpu(), 0
			for b.Loop() {
				done += g.flood(header, 20_000)
			}
			b.ReportMetric(float64((g.cpu()-before).Nanoseconds())/1000/float64(done), "µs-cpu/request")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func (g *gatewayStand) tag() string {
	req, _ := http.NewRequest(http.MethodGet, "http://"+g.address+"/api/v1/clusters", nil)
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		g.b.Fatal(err)
	}
	_ = res.Body.Close()
	return res.Header.Get("ETag")
}

// flood requests the list of clusters n times on 8 connections.
func (g *gatewayStand) flood(header http.Header, requests int) int {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, DisableCompression: true}}
	defer client.CloseIdleConnections()
	var left, done atomic.Int64
	left.Store(int64(requests))
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for left.Add(-1) >= 0 {
				req, _ := http.NewRequest(http.MethodGet, "http://"+g.address+"/api/v1/clusters", nil)
				req.Header = header
				res, err := client.Do(req)
				if err != nil {
					continue
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				done.Add(1)
			}
		})
	}
	wait.Wait()
	return int(done.Load())
}

// BenchmarkGatewayScale starts a gateway with 10,000 clusters and 60,000 machines, changes one cluster
// at a time, ten times in each round, and measures the time until the change arrives at a stream.
func BenchmarkGatewayScale(b *testing.B) {
	g := startGateway(b, 10_000, 6, "--stream.window=1ms")
	s := g.subscribe(b.Context(), "?topics=clusters")
	<-s.synced
	var took []time.Duration
	i := 0
	before := g.cpu()
	for b.Loop() {
		for range 10 {
			i++
			phase := "Running"
			if i%2 == 1 {
				phase = "Updating"
			}
			began := time.Now()
			g.putCluster(7, phase)
			<-s.news
			took = append(took, time.Since(began))
		}
	}
	now, highest := g.memory()
	b.ReportMetric(milliseconds(median(took)), "ms-change-to-stream")
	b.ReportMetric(milliseconds(g.cpu()-before)/float64(i), "ms-cpu/change")
	b.ReportMetric(milliseconds(g.listening), "ms-to-listening")
	b.ReportMetric(milliseconds(g.ready), "ms-to-ready")
	b.ReportMetric(now, "MB-now")
	b.ReportMetric(highest, "MB-highest")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkGatewayStreams has 10,000 clients of the event stream, and one change per second. It
// measures the time until half of the clients have the change, and the gateway's memory.
func BenchmarkGatewayStreams(b *testing.B) {
	const clients = 10_000
	g := startGateway(b, 10, 6, "--stream.maxClients="+strconv.Itoa(clients+1))
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	streams := make([]*subscription, clients)
	for i := range streams {
		streams[i] = g.subscribe(ctx, "?topics=clusters")
		<-streams[i].synced
	}
	before, began := g.cpu(), time.Now()
	var took []time.Duration
	i := 0
	for b.Loop() {
		i++
		changed := time.Now()
		g.putCluster(7, []string{"Running", "Updating"}[i%2])
		for _, s := range streams {
			took = append(took, (<-s.news).Sub(changed))
		}
		time.Sleep(time.Until(changed.Add(time.Second)))
	}
	_, highest := g.memory()
	b.ReportMetric(milliseconds(median(took)), "ms-p50")
	b.ReportMetric(highest, "MB-highest")
	b.ReportMetric(100*(g.cpu()-before).Seconds()/time.Since(began).Seconds(), "%cpu")
	b.ReportMetric(0, "ns/op")
}

// subscription is a client of the event stream.
type subscription struct {
	synced chan struct{}
	// news receives the time of every change.
	news chan time.Time
}

func (g *gatewayStand) subscribe(ctx context.Context, query string) *subscription {
	g.b.Helper()
	conn, err := net.Dial("tcp", g.address)
	if err != nil {
		g.b.Fatal(err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "GET /api/v1/stream%s HTTP/1.1\r\nHost: gateway\r\n\r\n", query); err != nil {
		g.b.Fatal(err)
	}
	s := &subscription{synced: make(chan struct{}), news: make(chan time.Time, 4)}
	go s.read(bufio.NewReaderSize(conn, 1024))
	return s
}

func (s *subscription) read(r *bufio.Reader) {
	synced := false
	for {
		line, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		switch text := string(line); {
		case strings.HasPrefix(text, "event: synced") && !synced:
			synced = true
			close(s.synced)
		case strings.HasPrefix(text, "event: ") && synced && !strings.HasPrefix(text, "event: heartbeat"):
			s.news <- time.Now()
		}
	}
}
