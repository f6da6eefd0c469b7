package cache

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/tests/stand/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }

func open(t *testing.T, c config.Redis) *Cache {
	t.Helper()
	made, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.Close() })
	return made
}

func withRedis(t *testing.T, address string) *Cache {
	t.Helper()
	return open(t, config.Redis{Used: true, URL: address, MaxRetries: 3, PoolSize: 4})
}

// counts returns the lookups at each level.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) look(level string, hit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[fmt.Sprintf("%s %v", level, hit)]++
}

func TestReplicasShare(t *testing.T) {
	t.Parallel()
	address := servers.Redis(t)
	a, b := withRedis(t, address), withRedis(t, address)
	seen := &counts{of: map[string]int{}}
	b.Count = seen.look
	if _, ok := b.Get(t.Context(), "k"); ok {
		t.Error("an empty cache has an answer")
	}
	a.Set(t.Context(), "k", []byte("v"), time.Minute)
	for range 2 {
		if v, ok := b.Get(t.Context(), "k"); !ok || string(v) != "v" {
			t.Errorf("the other replica has %q, %v", v, ok)
		}
	}
	want := map[string]int{"memory false": 2, "redis false": 1, "redis true": 1, "memory true": 1}
	for k, n := range want {
		if seen.of[k] != n {
			t.Errorf("%s: %d looks, want %d", k, seen.of[k], n)
		}
	}
	if err := a.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAnswersLapse(t *testing.T) {
	t.Parallel()
	c := open(t, config.Redis{})
	now := time.Unix(0, 0)
	c.now = func() time.Time { return now }
	c.Set(t.Context(), "k", []byte("v"), time.Minute)
	if _, ok := c.Get(t.Context(), "k"); !ok {
		t.Error("the answer is missing")
	}
	now = now.Add(time.Minute + 1)
	if _, ok := c.Get(t.Context(), "k"); ok {
		t.Error("the answer has not expired")
	}
	shared := withRedis(t, servers.Redis(t))
	shared.Set(t.Context(), "k", []byte("v"), 50*time.Millisecond)
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, ok := shared.Get(t.Context(), "k"); !ok {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the answer in Redis does not expire")
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	c := open(t, config.Redis{})
	for i := range 100 {
		c.Set(t.Context(), strconv.Itoa(i), make([]byte, 1<<20), time.Hour)
	}
	if c.bytes > maxBytes || len(c.kept) != c.order.Len() {
		t.Errorf("%d bytes in %d answers, %d in order", c.bytes, len(c.kept), c.order.Len())
	}
	if _, ok := c.Get(t.Context(), "99"); !ok {
		t.Error("the newest answer was removed")
	}
	if _, ok := c.Get(t.Context(), "0"); ok {
		t.Error("the oldest answer still exists")
	}
}

// TestRedisDown has a Redis that closes connections. Calls during an outage must not each try to
// connect.
func TestRedisDown(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	var calls atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_ = conn.Close()
		}
	}()
	c := withRedis(t, "redis://"+listener.Addr().String()+"/0")
	for i := range 100 {
		c.Set(t.Context(), strconv.Itoa(i), []byte("v"), time.Minute)
		if _, ok := c.Get(t.Context(), strconv.Itoa(i)); !ok {
			t.Fatal("memory does not replace Redis")
		}
		if c.Publish(t.Context(), []byte("x")) {
			t.Fatal("the message is not published")
		}
	}
	if n := calls.Load(); n == 0 || n > 100 {
		t.Errorf("300 calls during an outage of Redis have tried to connect %d times", n)
	}
	if c.Ping(t.Context()) == nil {
		t.Error("a Redis that is down answers")
	}
}

// TestSubscribe sends messages between replicas, and not to another program with another database of
// the same Redis.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	address := servers.Redis(t)
	a, b, stranger := withRedis(t, address), withRedis(t, address), withRedis(t, servers.Redis(t))
	received := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Subscribe(ctx, func(m []byte) { received <- string(m) }, func(time.Time) {})
	}()
	deadline := time.After(3 * time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for got := ""; got == ""; {
		select {
		case got = <-received:
			if got != "hello" {
				t.Errorf("received %q", got)
			}
		case <-tick.C:
			if !stranger.Publish(t.Context(), []byte("not for you")) {
				t.Fatal("the stranger cannot publish")
			}
			a.Publish(t.Context(), []byte("hello"))
		case <-deadline:
			t.Fatal("no message arrives")
		}
	}
	cancel()
	<-done
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(servers.Redis(t))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, config.Redis{Used: true, Host: u.Hostname(), Port: port, PoolSize: 1})
	if err := c.Ping(t.Context()); err != nil || c.Mode() != Redis {
		t.Errorf("by host and port: %v, mode %s", err, c.Mode())
	}
	if c := open(t, config.Redis{Host: "localhost", Port: 6379}); c.Mode() != Memory || c.Ping(t.Context()) != nil {
		t.Error("Redis is used without a configuration")
	}
	if _, err := New(config.Redis{Used: true, URL: "http://x"}); err == nil {
		t.Error("an invalid address was accepted")
	}
}
