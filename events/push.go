package events

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/vitistack/stack/events/outbound"
)

// pusher tells the gateway what this process has counted, because a process that is
// gone cannot be asked. Each push has all of it, so that the next one makes up for one
// that fails. A process that counts nothing pushes nothing.
type pusher struct {
	// url is where to; empty pushes nothing.
	url string
	// pause is from the first thing that is counted until the push.
	pause time.Duration
	log   *slog.Logger

	mu sync.Mutex
	// timer is for the next push, if there is something to push.
	timer *time.Timer
	// counts tells whether anything was ever counted.
	counts, ended bool

	// pushing is held during a push.
	pushing sync.Mutex
	// instance tells this process from others.
	instance string
	failing  bool
}

// counted notes that there is something to push.
func (p *pusher) counted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts = true
	if p.url != "" && p.timer == nil && !p.ended {
		p.timer = time.AfterFunc(p.pause, p.due)
	}
}

func (p *pusher) due() {
	p.pushing.Lock()
	defer p.pushing.Unlock()
	p.mu.Lock()
	p.timer = nil
	ended := p.ended
	p.mu.Unlock()
	if !ended {
		p.push(p.url)
	}
}

// end pushes for the last time.
func (p *pusher) end() {
	p.mu.Lock()
	p.ended = true
	if p.timer != nil {
		p.timer.Stop()
	}
	counts := p.counts
	p.mu.Unlock()
	if p.url == "" || !counts {
		return
	}
	p.pushing.Lock()
	defer p.pushing.Unlock()
	separator := "?"
	if strings.Contains(p.url, "?") {
		separator = "&"
	}
	p.push(p.url + separator + "ended=true")
}

// push pushes once. Of a series of failures the first is logged.
func (p *pusher) push(url string) {
	if p.instance == "" {
		p.instance = rand.Text()
	}
	err := post(url, labelled(p.instance))
	if err != nil && !p.failing {
		p.log.Warn("Cannot push metrics, which stay for the next push", "error", err.Error())
	}
	p.failing = err != nil
}

// labelled is what this process has counted, each line with the label instance.
func labelled(instance string) *bytes.Buffer {
	var all, out bytes.Buffer
	metrics.WritePrometheus(&all, false)
	for line := range bytes.Lines(all.Bytes()) {
		name := bytes.IndexAny(line, "{ ")
		if line[0] == '#' || name < 0 {
			out.Write(line)
			continue
		}
		fmt.Fprintf(&out, "%s{instance=%q", line[:name], instance)
		if line[name] == '{' {
			fmt.Fprintf(&out, ",%s", line[name+1:])
		} else {
			fmt.Fprintf(&out, "}%s", line[name:])
		}
	}
	return &out
}

func post(url string, text *bytes.Buffer) error {
	ctx, cancel := context.WithTimeout(context.Background(), pushTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, text)
	if err != nil {
		return fmt.Errorf("push metrics: %w", err)
	}
	req.Header.Set("Content-Type", "text/plain; version=0.0.4")
	res, err := (&http.Client{CheckRedirect: outbound.Stay}).Do(req)
	if err != nil {
		return fmt.Errorf("push metrics: %w", err)
	}
	_ = res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("push metrics to %s: %s", req.URL.Redacted(), res.Status)
	}
	return nil
}
