package httpserver

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// limiter is a token bucket for each caller (GCRA). A bucket is one time: when it is full again. That is a tenth of the memory of
// a golang.org/x/time/rate.Limiter, and gives the headers and the callers to forget directly.
type limiter struct {
	enabled bool
	// byKey counts callers by their API key if they have one.
	byKey bool
	// interval is the time until a token comes back, depth the time until an empty bucket is full.
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

// maxCallers bounds the callers of a shard. A caller with a full bucket needs no entry.
const maxCallers = 4096

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

// take takes a token from a caller's bucket. It returns how many tokens are left, the time until the next one comes back, and
// whether there was one.
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
	if len(shard.full) >= maxCallers {
		shard.forget(now)
	}
	shard.full[caller] = full
	missing := full.Sub(now)
	return int((l.depth - missing) / l.interval), missing % l.interval, true
}

// forget drops the callers whose buckets are full. If many remain, it drops half of all, so that a flood of callers does not make
// each request expensive.
func (s *limiterShard) forget(now time.Time) {
	for caller, full := range s.full {
		if full.Before(now) {
			delete(s.full, caller)
		}
	}
	for caller := range s.full {
		if len(s.full) <= maxCallers/2 {
			return
		}
		delete(s.full, caller)
	}
}

// limitRate takes a token for a request, or returns the problem that none is left.
func (s *Server) limitRate(c *fiber.Ctx, r *Route, who auth.Caller) error {
	l := s.limiter
	if !l.enabled {
		return nil
	}
	name := s.ClientAddress(c)
	if l.byKey && who.Name != "" {
		name = who.Name
	}
	bucket := string(append([]byte(nil), name...))
	if r.OwnBucket {
		bucket += " stays"
	}
	left, next, ok := l.take(bucket, time.Now())
	seconds := int(next/time.Second) + 1
	reset := strconv.Itoa(seconds)
	h := &c.Context().Response.Header
	h.Set("RateLimit-Policy", l.policy)
	h.Set("RateLimit", `"default";r=`+strconv.Itoa(left)+";t="+reset)
	h.Set("X-RateLimit-Limit", strconv.Itoa(l.burst))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(left))
	h.Set("X-RateLimit-Reset", reset)
	if ok {
		return nil
	}
	return problem.New(http.StatusTooManyRequests, "too many requests: wait %d s, or receive changes from the stream at /api/v1/stream instead of polling", seconds).WithRetryAfter(seconds)
}
