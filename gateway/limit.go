package main

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// limiter is a token bucket for each caller. A bucket is one time: when it will be
// full again.
type limiter struct {
	enabled bool
	// byKey counts callers by their API key where they have one.
	byKey bool
	// interval is in which a token comes back, depth how long an empty bucket takes
	// to fill.
	interval, depth time.Duration
	policy          string
	burst           int
	seed            maphash.Seed
	shards          [32]limiterShard
}

type limiterShard struct {
	mu   sync.Mutex
	full map[string]time.Time
}

// mostCallers bounds the callers that a shard knows. Those whose buckets are full
// need not be known.
const mostCallers = 4096

func newLimiter(c config.RateLimit) *limiter {
	l := &limiter{
		enabled: c.Enabled, byKey: c.Enabled && c.KeyGenerator == "key", burst: c.BurstSize,
		interval: time.Minute / time.Duration(c.RequestsPerMinute), seed: maphash.MakeSeed(),
		policy: `"default";q=` + strconv.Itoa(c.RequestsPerMinute) + ";w=60",
	}
	l.depth = l.interval * time.Duration(c.BurstSize)
	for i := range l.shards {
		l.shards[i].full = map[string]time.Time{}
	}
	return l
}

// take takes a token from a caller's bucket. It returns how many are left, when
// the next one comes back, and whether there was one.
func (l *limiter) take(caller string, now time.Time) (left int, next time.Duration, ok bool) {
	shard := &l.shards[maphash.String(l.seed, caller)%uint64(len(l.shards))]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	full := shard.full[caller]
	if full.Before(now) {
		full = now
	}
	if missing := full.Sub(now); missing > l.depth-l.interval {
		return 0, missing - (l.depth - l.interval), false
	}
	full = full.Add(l.interval)
	if len(shard.full) >= mostCallers {
		shard.forget(now)
	}
	shard.full[caller] = full
	missing := full.Sub(now)
	return int((l.depth - missing) / l.interval), missing % l.interval, true
}

// forget drops the callers whose buckets are full. Where that leaves many, half of
// all go, so that a flood of callers does not make each of them costly.
func (s *limiterShard) forget(now time.Time) {
	for caller, full := range s.full {
		if full.Before(now) {
			delete(s.full, caller)
		}
	}
	for caller := range s.full {
		if len(s.full) <= mostCallers/2 {
			return
		}
		delete(s.full, caller)
	}
}

// limit takes a token for a request, or is the problem that there is none.
func (g *gateway) limit(c *fiber.Ctx, e *endpoint, who caller) error {
	l := g.limiter
	if !l.enabled {
		return nil
	}
	name := g.callerAddress(c)
	if l.byKey && who.Name != "" {
		name = who.Name
	}
	bucket := string(append([]byte(nil), name...))
	if e.staying {
		bucket += " stays"
	}
	left, next, ok := l.take(bucket, time.Now())
	seconds := strconv.Itoa(int(next/time.Second) + 1)
	h := &c.Context().Response.Header
	h.Set("RateLimit-Policy", l.policy)
	h.Set("RateLimit", `"default";r=`+strconv.Itoa(left)+";t="+seconds)
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.burst))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset", seconds)
	if ok {
		return nil
	}
	return problem.New(http.StatusTooManyRequests, "too many requests: wait %s s; a stream at /api/v1/stream tells changes without asking", seconds).WithRetryAfter(int(next/time.Second) + 1)
}
