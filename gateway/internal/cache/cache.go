// Package cache caches values in memory and, if configured, in Redis, so that replicas and restarts share them. Nothing fails while
// Redis is down; only its savings are lost.
package cache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/vitistack/stack/gateway/internal/config"
)

// Levels of the cache, as the metrics have them.
const (
	Memory = "memory"
	Redis  = "redis"
)

// Bounds of the cache.
const (
	// maxEntries is how many answers are kept in memory, and maxBytes how large they
	// may be together.
	maxEntries = 10_000
	maxBytes   = 16 << 20
	// redisTimeout bounds a request to Redis. A longer wait saves nothing over the original request.
	redisTimeout = 100 * time.Millisecond
	// pause is the time without requests to Redis after a failure.
	pause = 5 * time.Second
	// prefix is what the keys in Redis begin with.
	prefix = "vitistack:"
)

// Cache caches values by key.
type Cache struct {
	// Count is called for each lookup in a level.
	Count func(level string, hit bool)

	redis   *redis.Client
	channel string
	now     func() time.Time

	mu    sync.Mutex
	kept  map[string]*list.Element
	order list.List
	bytes int
	// resume is when Redis is asked again, and answered when it last did.
	resume, answered time.Time
}

type item struct {
	key     string
	value   []byte
	expires time.Time
}

// New returns a cache. An invalid address of Redis is an error; an unreachable Redis is not.
func New(c config.Redis) (*Cache, error) {
	made := &Cache{Count: func(string, bool) {}, now: time.Now, kept: map[string]*list.Element{}}
	if !c.Used {
		return made, nil
	}
	options := &redis.Options{Addr: net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), DB: c.DB, Password: c.Password}
	if c.URL != "" {
		var err error
		if options, err = redis.ParseURL(c.URL); err != nil {
			return nil, errors.New("read REDIS_URL: write redis://user:password@host:6379/0")
		}
	}
	redis.SetLogger(quiet{})
	options.MaxRetries, options.PoolSize = c.MaxRetries, c.PoolSize
	if c.MaxRetries == 0 {
		options.MaxRetries = -1
	}
	options.DialTimeout = 2 * time.Second
	options.ContextTimeoutEnabled = true
	made.redis, made.channel = redis.NewClient(options), channelOf(options.DB)
	return made, nil
}

// quiet discards the log of the Redis client. The health check reports problems with Redis.
type quiet struct{}

// Printf writes nothing.
func (quiet) Printf(context.Context, string, ...any) {}

// Mode returns the highest level.
func (c *Cache) Mode() string {
	if c.redis != nil {
		return Redis
	}
	return Memory
}

// Close ends the connections to Redis.
func (c *Cache) Close() error {
	if c.redis == nil {
		return nil
	}
	return c.redis.Close()
}

// Ping returns an error if Redis does not answer. Without Redis it returns nil.
func (c *Cache) Ping(ctx context.Context) error {
	if c.redis == nil {
		return nil
	}
	if err := c.redis.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("reach Redis: %w", err)
	}
	c.mu.Lock()
	c.resume, c.answered = time.Time{}, c.now()
	c.mu.Unlock()
	return nil
}

// Get returns a value that has not expired.
func (c *Cache) Get(ctx context.Context, key string) ([]byte, bool) {
	value, ok := c.inMemory(key)
	c.Count(Memory, ok)
	if ok {
		return value, true
	}
	if !c.redisUsable() {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	pipe := c.redis.Pipeline()
	got, left := pipe.Get(ctx, prefix+key), pipe.PTTL(ctx, prefix+key)
	_, err := pipe.Exec(ctx)
	switch {
	case errors.Is(err, redis.Nil):
		c.Count(Redis, false)
		return nil, false
	case err != nil:
		c.Count(Redis, false)
		c.failed()
		return nil, false
	}
	c.Count(Redis, true)
	value = []byte(got.Val())
	if ttl := left.Val(); ttl > 0 {
		c.keep(key, value, ttl)
	}
	return value, true
}

// Set caches a value for a time.
func (c *Cache) Set(ctx context.Context, key string, value []byte, ttl time.Duration) {
	c.keep(key, value, ttl)
	if !c.redisUsable() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := c.redis.Set(ctx, prefix+key, value, ttl).Err(); err != nil {
		c.failed()
	}
}

func (c *Cache) inMemory(key string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.kept[key]
	if !ok {
		return nil, false
	}
	i := e.Value.(*item)
	if c.now().After(i.expires) {
		c.drop(e)
		return nil, false
	}
	c.order.MoveToFront(e)
	return i.value, true
}

func (c *Cache) keep(key string, value []byte, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.kept[key]; ok {
		c.drop(e)
	}
	c.kept[key] = c.order.PushFront(&item{key, value, c.now().Add(ttl)})
	c.bytes += len(key) + len(value)
	for len(c.kept) > maxEntries || (c.bytes > maxBytes && len(c.kept) > 1) {
		c.drop(c.order.Back())
	}
}

func (c *Cache) drop(e *list.Element) {
	i := c.order.Remove(e).(*item)
	delete(c.kept, i.key)
	c.bytes -= len(i.key) + len(i.value)
}

// redisUsable reports whether Redis is configured and has not just failed.
func (c *Cache) redisUsable() bool {
	if c.redis == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().After(c.resume)
}

func (c *Cache) failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resume = c.now().Add(pause)
}
