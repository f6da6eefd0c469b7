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

// pusher pushes the metrics of this process to the gateway, because a process that has
// scaled to zero cannot be scraped. Each push has all metrics, so the next push makes up
// for a failed one. A process that counts nothing pushes nothing.
type pusher struct {
	// url is the target. If it is empty, nothing is pushed.
	url string
	// pause is the time between the first count and the push.
	pause time.Duration
	log   *slog.Logger

	mu sync.Mutex
	// timer runs until the next push, and is nil if there is nothing to push.
	timer *time.Timer
	// counts is whether anything has been counted.
	counts, ended bool

	// pushing is held during a push.
	pushing sync.Mutex
	// instance identifies this process.
	instance string
	failing  bool
}

// counted schedules a push.
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

// end pushes a last time.
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

// push pushes once. Of consecutive failures only the first is logged.
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

// labelled returns the metrics of this process, each with the label instance.
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
