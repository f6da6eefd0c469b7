package telemetry

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Pushed adds up the counters of processes that come and go: a process pushes what
// it has counted since its start, and what it has pushed last stays when it ends.
// The zero value is ready.
type Pushed struct {
	mu sync.Mutex
	// ended has what processes have counted that are heard of no more.
	ended     map[string]float64
	instances map[string]*instance
}

type instance struct {
	last map[string]float64
	seen time.Time
}

// Bounds of what is taken.
const (
	mostInstances = 1000
	mostSeries    = 5000
	// silence is after how long a process counts as ended.
	silence = 10 * time.Minute
)

// prefix is what the names begin with that are taken.
const prefix = "vitistack_function_"

var (
	series        = regexp.MustCompile(`^(` + prefix + `[a-z0-9_]+_(?:total|sum|count|bucket))(\{[^{}]*\})?$`)
	instanceLabel = regexp.MustCompile(`instance="([^"]*)",?`)
)

// Take reads what a process has counted, in the Prometheus text format, with the
// label instance that tells it from others. Series that are not counters of
// functions are left out. It returns how many were taken.
func (p *Pushed) Take(body io.Reader, now time.Time) (int, error) {
	read := map[string]map[string]float64{}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 64<<10)
	taken := 0
	for lines.Scan() {
		from, name, value, ok := parseLine(lines.Text())
		if !ok || taken >= mostSeries {
			continue
		}
		if read[from] == nil {
			read[from] = map[string]float64{}
		}
		read[from][name] = value
		taken++
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fold(now)
	for from, values := range read {
		p.take(from, values, now)
	}
	return taken, nil
}

// parseLine reads one line: the instance, the series without it, and its value.
func parseLine(line string) (from, name string, value float64, ok bool) {
	name, text, found := strings.Cut(strings.TrimSpace(line), " ")
	if brace := strings.LastIndexByte(line, '}'); brace >= 0 {
		name, text, found = line[:brace+1], line[brace+1:], true
	}
	if !found || !series.MatchString(name) || strings.Contains(name, "vmrange=") {
		return "", "", 0, false
	}
	fields := strings.Fields(text)
	if len(fields) == 0 {
		return "", "", 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || value < 0 || math.IsInf(value, 0) || math.IsNaN(value) {
		return "", "", 0, false
	}
	if m := instanceLabel.FindStringSubmatch(name); m != nil {
		from = m[1]
		name = strings.Replace(strings.Replace(name, m[0], "", 1), ",}", "}", 1)
		name = strings.TrimSuffix(name, "{}")
	}
	return from, name, value, true
}

func (p *Pushed) take(from string, values map[string]float64, now time.Time) {
	if p.instances == nil {
		p.instances, p.ended = map[string]*instance{}, map[string]float64{}
	}
	i := p.instances[from]
	if i == nil {
		if len(p.instances) >= mostInstances {
			p.end(p.oldest())
		}
		i = &instance{last: map[string]float64{}}
		p.instances[from] = i
	}
	i.seen = now
	for name, value := range values {
		if before := i.last[name]; value < before {
			// Another process under the same name begins anew.
			p.add(name, before)
		}
		i.last[name] = value
	}
}

// fold lets what has been silent for long count as ended.
func (p *Pushed) fold(now time.Time) {
	for from, i := range p.instances {
		if now.Sub(i.seen) > silence {
			p.end(from)
		}
	}
}

func (p *Pushed) oldest() string {
	name, seen := "", time.Time{}
	for from, i := range p.instances {
		if name == "" || i.seen.Before(seen) {
			name, seen = from, i.seen
		}
	}
	return name
}

func (p *Pushed) end(from string) {
	for name, value := range p.instances[from].last {
		p.add(name, value)
	}
	delete(p.instances, from)
}

func (p *Pushed) add(name string, value float64) {
	if _, known := p.ended[name]; known || len(p.ended) < mostSeries {
		p.ended[name] += value
	}
}

// sums are the counters of all processes together, by series.
func (p *Pushed) sums() map[string]float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	sums := make(map[string]float64, len(p.ended))
	for name, value := range p.ended {
		sums[name] += value
	}
	for _, i := range p.instances {
		for name, value := range i.last {
			sums[name] += value
		}
	}
	return sums
}

var delivery = regexp.MustCompile(`^` + prefix + `deliveries_total\{function="([^"]+)",outcome="([^"]+)"\}$`)

// Deliveries counts the events that each function was delivered, by outcome.
func (p *Pushed) Deliveries() map[string]map[string]uint64 {
	counts := map[string]map[string]uint64{}
	for name, value := range p.sums() {
		m := delivery.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		if counts[m[1]] == nil {
			counts[m[1]] = map[string]uint64{}
		}
		counts[m[1]][m[2]] += uint64(value)
	}
	return counts
}

// Write writes the sums, each family with its HELP and TYPE.
func (p *Pushed) Write(w io.Writer) {
	sums := p.sums()
	names := make([]string, 0, len(sums))
	for name := range sums {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(strings.Compare(familyOf(a), familyOf(b)), strings.Compare(a, b))
	})
	last := ""
	for _, name := range names {
		if f := familyOf(name); f != last {
			_, _ = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", f, helpOf(f), f, kindOf(f))
			last = f
		}
		_, _ = fmt.Fprintf(w, "%s %v\n", name, sums[name])
	}
}

// familyOf is the name that HELP and TYPE of a series have.
func familyOf(name string) string {
	base, _, _ := strings.Cut(name, "{")
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if short, ok := strings.CutSuffix(base, suffix); ok {
			return short
		}
	}
	return base
}

func kindOf(family string) string {
	if strings.HasSuffix(family, "_total") {
		return Counter
	}
	return Histogram
}

func helpOf(family string) string {
	switch family {
	case "vitistack_function_deliveries_total":
		return "Events that the functions were delivered, by outcome: done, retry or failed"
	case "vitistack_function_delivery_duration_seconds":
		return "Time that the functions took for an event"
	default:
		return "Counted by the functions"
	}
}
