package httpserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/vitistack/stack/gateway/internal/config"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	l := newLimiter(config.RateLimit{Enabled: true, RequestsPerMinute: 60, BurstSize: 10, KeyGenerator: "ip"})
	now := time.Unix(0, 0)
	for i := range 10 {
		if left, _, ok := l.take("a", now); !ok || left != 9-i {
			t.Fatalf("token %d: %d left, %v", i, left, ok)
		}
	}
	if _, next, ok := l.take("a", now); ok || next != time.Second {
		t.Errorf("the eleventh: %v, next in %s", ok, next)
	}
	if _, _, ok := l.take("a", now.Add(time.Second)); !ok {
		t.Error("a second later there is no token")
	}
	if _, _, ok := l.take("a", now.Add(time.Second)); ok {
		t.Error("a second later there are two tokens")
	}
	if left, _, _ := l.take("a", now.Add(time.Hour)); left != 9 {
		t.Errorf("an hour later %d are left", left)
	}
	for i := range 200_000 {
		l.take(fmt.Sprint(i), now)
	}
	known := 0
	for i := range l.shards {
		known += len(l.shards[i].full)
	}
	if known > len(l.shards)*maxCallers {
		t.Errorf("%d callers are stored", known)
	}
}
