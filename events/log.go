package events

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// NewLogger writes JSON lines with the fields timestamp (RFC 3339), level (lower
// case) and message. level is debug, info, warn or error; anything else is info.
func NewLogger(w io.Writer, level string) *slog.Logger {
	var threshold slog.Level
	if err := threshold.UnmarshalText([]byte(level)); err != nil {
		threshold = slog.LevelInfo
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: threshold,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return a
			}
			switch a.Key {
			case slog.TimeKey:
				return slog.String("timestamp", a.Value.Time().UTC().Format(time.RFC3339Nano))
			case slog.LevelKey:
				return slog.String(slog.LevelKey, strings.ToLower(a.Value.String()))
			case slog.MessageKey:
				a.Key = "message"
			}
			return a
		},
	}))
}

// Report adds the result of a delivery to its log line: the phase of the object, and a
// short message about what was done or what the object waits for. A later call in the
// same delivery overrides an earlier one. Outside of a delivery it does nothing.
func Report(ctx context.Context, phase, message string) {
	if d, ok := ctx.Value(deliveryKey{}).(*delivery); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.phase, d.message = phase, message
	}
}

// CountRequest adds a request to an API server to the log line of the delivery that sends it. A read
// that several deliveries share counts for the one that sends it. Outside of a delivery it does
// nothing.
func CountRequest(ctx context.Context, write bool) {
	d, ok := ctx.Value(deliveryKey{}).(*delivery)
	switch {
	case !ok:
	case write:
		d.writes.Add(1)
	default:
		d.reads.Add(1)
	}
}

type deliveryKey struct{}

// delivery collects what is logged about one delivery.
type delivery struct {
	mu      sync.Mutex
	phase   string
	message string
	// reads and writes are the numbers of requests to API servers.
	reads, writes atomic.Int64
}

func (d *delivery) report() (phase, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.phase, d.message
}
