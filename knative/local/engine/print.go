package engine

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// printer prints lines for the user. It is safe for concurrent use.
type printer struct {
	mu  sync.Mutex
	out io.Writer
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, format+"\n", args...)
}

// event prints a line with the time of day.
func (p *printer) event(format string, args ...any) {
	p.printf("%s  %s", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// step prints what was done and its duration.
func (p *printer) step(what string, began time.Time) {
	p.printf("  %-44s %5.1f s", what, time.Since(began).Seconds())
}
