package bench

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// hostileConnections is the number of attackers. Each has an address of its own.
const hostileConnections = 5000

// BenchmarkGatewayFlood attacks a gateway with its default configuration: unfinished headers and
// bodies from 5,000 addresses at once. It measures the growth of the gateway's memory, and how much
// longer other clients wait while the attackers hold as many connections as possible and reconnect. It
// fails above 64 MB, and above twice the time.
func BenchmarkGatewayFlood(b *testing.B) {
	g := startGateway(b, 1000, 6, "--logging.enabled=false", "--server.maxHeaderBytes=16384")
	quiet := g.latency(2000)
	before, _ := g.memory()
	var added, ratio float64
	for b.Loop() {
		a := g.attack()
		ratio = max(ratio, float64(g.latency(2000))/float64(quiet))
		a.end()
		_, highest := g.memory()
		added = max(added, highest-before)
	}
	b.ReportMetric(added, "MB-added")
	b.ReportMetric(ratio, "latency-ratio")
	b.ReportMetric(0, "ns/op")
	if added > 64 || ratio > 2 {
		b.Errorf("the attack adds %.0f MB and makes other clients wait %.1f times as long: at most 64 MB and twice", added, ratio)
	}
}

// latency returns the median time to an answer on a new connection.
func (g *gatewayStand) latency(requests int) time.Duration {
	g.b.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	took := make([]time.Duration, requests)
	for i := range took {
		began := time.Now()
		res, err := client.Get("http://" + g.address + "/api/v1/clusters?limit=10")
		if err != nil {
			g.b.Fatalf("a request of another client: %v", err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			g.b.Fatalf("a request of another client: %s", res.Status)
		}
		took[i] = time.Since(began)
	}
	return median(took)
}

// attack is a set of connections that stay open, or are opened again.
type attack struct {
	address string
	conns   []net.Conn
	stop    chan struct{}
	stopped sync.WaitGroup
}

// reopened is the number of connections that are opened again per second.
const reopened = 250

// attack opens all hostile connections, and reopens closed ones until its end.
func (g *gatewayStand) attack() *attack {
	a := &attack{address: g.address, conns: make([]net.Conn, hostileConnections), stop: make(chan struct{})}
	const attackers = 50
	for n := range attackers {
		a.stopped.Go(func() {
			for i := n; i < hostileConnections; i += attackers {
				a.open(i)
			}
		})
	}
	a.stopped.Wait()
	a.stopped.Go(func() {
		tick := time.NewTicker(time.Second / reopened)
		defer tick.Stop()
		for i := 0; ; i = (i + 1) % hostileConnections {
			select {
			case <-a.stop:
				return
			case <-tick.C:
				a.open(i)
			}
		}
	})
	return a
}

// open opens a connection, and sends an unfinished request: almost 16 KiB of headers, a body, a
// chunked body, or events without a key.
func (a *attack) open(i int) {
	filler := strings.Repeat("x", 15<<10)
	sent := []string{
		"GET / HTTP/1.1\r\nHost: g\r\nX-A: " + filler,
		"POST /api/v1/preview HTTP/1.1\r\nHost: g\r\nContent-Length: 2000000\r\n\r\n" + filler,
		"POST /api/v1/preview HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n" + filler,
		"POST /api/v1/events HTTP/1.1\r\nHost: g\r\nContent-Length: 2000000\r\n\r\n" + filler,
	}
	if a.conns[i] != nil {
		_ = a.conns[i].Close()
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(1+i/200), byte(1+i%200))}, Timeout: time.Minute}
	conn, err := dialer.Dial("tcp", a.address)
	if err != nil {
		a.conns[i] = nil
		return
	}
	_, _ = io.WriteString(conn, sent[i%len(sent)])
	a.conns[i] = conn
}

func (a *attack) end() {
	close(a.stop)
	a.stopped.Wait()
	for _, conn := range a.conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}
