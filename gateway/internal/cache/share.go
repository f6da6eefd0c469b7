package cache

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// channelOf is where the replicas with one database tell each other what has happened.
// Redis has the same channels for all its databases, and each may be somebody's.
func channelOf(database int) string { return prefix + strconv.Itoa(database) + ":events" }

// Publish tells the other replicas, and returns whether Redis has taken it. Without
// Redis there are none.
func (c *Cache) Publish(ctx context.Context, message []byte) bool {
	if c.redis == nil {
		return true
	}
	if !c.redisUsable() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.redis.Publish(ctx, c.channel, message).Err(); err != nil {
		c.failed()
		return false
	}
	return true
}

// Subscribe calls heard with what any replica publishes, this one too, until ctx
// ends. It goes on when Redis has been away: each time that it begins to listen, it
// calls begun with when Redis last answered before, since when it may have missed
// something.
func (c *Cache) Subscribe(ctx context.Context, heard func([]byte), begun func(since time.Time)) {
	if c.redis == nil {
		return
	}
	c.proven()
	s := c.redis.Subscribe(ctx, c.channel)
	defer func() { _ = s.Close() }()
	news := s.ChannelWithSubscriptions()
	for {
		select {
		case <-ctx.Done():
			return
		case n, ok := <-news:
			if !ok {
				return
			}
			since := c.proven()
			switch n := n.(type) {
			case *redis.Subscription:
				begun(since)
			case *redis.Message:
				heard([]byte(n.Payload))
			}
		}
	}
}

// proven notes that Redis answers, and returns when it last did.
func (c *Cache) proven() (before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.answered = c.answered, c.now()
	return before
}
