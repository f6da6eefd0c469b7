package cache

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// channelOf returns the channel of the replicas that share a database of Redis. Channels are common to all databases, and another
// installation may use another database.
func channelOf(database int) string { return prefix + strconv.Itoa(database) + ":events" }

// Publish sends a message to the other replicas, and reports whether Redis has accepted it. Without Redis it returns true.
func (c *Cache) Publish(ctx context.Context, message []byte) bool {
	if c.redis == nil {
		return true
	}
	if !c.redisUsable() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if err := c.redis.Publish(ctx, c.channel, message).Err(); err != nil {
		c.failed()
		return false
	}
	return true
}

// Subscribe calls heard with the messages of all replicas, including this one, until ctx ends. It reconnects after an interruption of
// Redis: each time it begins to listen, it calls begun with the time of the last answer before, since which messages may be lost.
func (c *Cache) Subscribe(ctx context.Context, heard func([]byte), begun func(since time.Time)) {
	if c.redis == nil {
		return
	}
	c.noteAnswer()
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
			since := c.noteAnswer()
			switch n := n.(type) {
			case *redis.Subscription:
				begun(since)
			case *redis.Message:
				heard([]byte(n.Payload))
			}
		}
	}
}

// noteAnswer records that Redis answers, and returns the time of the previous answer.
func (c *Cache) noteAnswer() (before time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.answered = c.answered, c.now()
	return before
}
