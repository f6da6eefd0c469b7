// Package chaos injects the faults that the stack must tolerate, and checks the result.
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

// EventFaults are the faults of events.
type EventFaults struct {
	// Drop and Duplicate are the shares of events that are lost and that arrive twice.
	Drop, Duplicate float64
	// Delay is the maximum delay of an event. Each event has a random delay, so that events are
	// reordered.
	Delay time.Duration
}

// Network is a proxy between the senders of events and the broker. It acknowledges every event,
// whatever happens to it.
type Network struct {
	URL string

	mu     sync.Mutex
	rand   *rand.Rand
	faults EventFaults
	broker string
	seen   []byte
}

// mostSeen bounds the number of recorded events.
const mostSeen = 64 << 20

// Seen returns the events that have passed, in their order.
func (n *Network) Seen() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen
}

// NewNetwork returns a network without faults until SetFaults. The same seed leads to the same faults,
// if the events have the same order.
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

// SetBroker sets the destination of the events.
func (n *Network) SetBroker(url string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broker = url
}

// SetFaults changes the faults of the events from now on.
func (n *Network) SetFaults(w EventFaults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = w
}

func (n *Network) handler(ctx context.Context, sending *sync.WaitGroup) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		header := r.Header.Clone()
		n.see(header, body)
		for _, delay := range n.copyDelays() {
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

// copyDelays returns the delay of each copy of an event.
func (n *Network) copyDelays() (delays []time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	copies := 1
	if n.rand.Float64() < n.faults.Duplicate {
		copies = 2
	}
	for range copies {
		if n.rand.Float64() < n.faults.Drop {
			continue
		}
		delays = append(delays, time.Duration(n.rand.Float64()*float64(n.faults.Delay)))
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
		return // the event is lost, as an event may be
	}
	_ = res.Body.Close()
}
