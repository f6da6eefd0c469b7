// Package chaos breaks what the stack promises to bear, and checks that it ends up
// where it should.
package chaos

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Weather is what a network does to events.
type Weather struct {
	// Drop and Duplicate are the shares of events that are lost, and that arrive
	// twice.
	Drop, Duplicate float64
	// Delay is the longest time for which an event is held back. Each waits for a
	// time of its own, so that they overtake each other.
	Delay time.Duration
}

// Network stands between those who send events and the broker. It acknowledges
// every event, whatever becomes of it.
type Network struct {
	URL string

	mu      sync.Mutex
	rand    *rand.Rand
	weather Weather
	broker  string
	seen    []byte
}

// mostSeen bounds what is kept of events.
const mostSeen = 64 << 20

// Seen are all events that have come by, one after the other.
func (n *Network) Seen() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen
}

// NewNetwork makes a network that does nothing to events until SetWeather. The same
// seed hits the same events again, if they come in the same order.
func NewNetwork(t testing.TB, seed uint64) *Network {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &Network{URL: "http://" + listener.Addr().String() + "/", rand: rand.New(rand.NewPCG(seed, seed))}
	ctx, cancel := context.WithCancel(context.Background())
	var sending sync.WaitGroup
	server := &http.Server{Handler: n.handler(ctx, &sending), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		cancel()
		_ = server.Close()
		sending.Wait()
	})
	return n
}

// SetBroker says where the events go.
func (n *Network) SetBroker(url string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broker = url
}

// SetWeather changes what happens to the events from now on.
func (n *Network) SetWeather(w Weather) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.weather = w
}

func (n *Network) handler(ctx context.Context, sending *sync.WaitGroup) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		header := r.Header.Clone()
		n.see(header, body)
		for _, delay := range n.fate() {
			sending.Go(func() { n.forward(ctx, delay, header, body) })
		}
		w.WriteHeader(http.StatusAccepted)
	})
}

func (n *Network) see(header http.Header, body []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.seen) > mostSeen {
		return
	}
	for name, values := range header {
		if name != "Authorization" {
			n.seen = append(n.seen, strings.Join(values, "\n")...)
		}
	}
	n.seen = append(n.seen, body...)
}

// fate is when each copy of an event arrives.
func (n *Network) fate() (delays []time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	copies := 1
	if n.rand.Float64() < n.weather.Duplicate {
		copies = 2
	}
	for range copies {
		if n.rand.Float64() < n.weather.Drop {
			continue
		}
		delays = append(delays, time.Duration(n.rand.Float64()*float64(n.weather.Delay)))
	}
	return delays
}

func (n *Network) forward(ctx context.Context, delay time.Duration, header http.Header, body []byte) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(delay):
	}
	n.mu.Lock()
	broker := n.broker
	n.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, broker, bytes.NewReader(body))
	if err != nil {
		return
	}
	req.Header = header
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return // the event is lost, as events are
	}
	_ = res.Body.Close()
}
