package metrics

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Pushed adds up the counters of processes that come and go: a process pushes what
// it has counted since its start, and what it has pushed last stays when it ends. Of
// gauges it has what was pushed last, whoever did. The zero value is ready.
type Pushed struct {
	mu sync.Mutex
	// ended has what processes have counted that are heard of no more.
	ended     map[series]float64
	instances map[string]*instance
	// held is how many series all instances have.
	held int
	// gauges are by family, each as one process has told it.
	gauges  map[string]map[series]float64
	refused uint64
}

type instance struct {
	last map[series]float64
	seen time.Time
}

// Bounds of what is taken.
const (
	mostInstances = 1000
	// mostSeries is for one process, for all that have ended, and for the gauges.
	mostSeries = 5000
	// mostHeld is for all processes together.
	mostHeld = 50000
	// longest is a series with its labels and value.
	longest = 1024
	// silence is after how long a process counts as ended that has not said so. One
	// that lives and then pushes again is counted twice.
	silence = 24 * time.Hour
)

// Take reads what a process has counted, in the Prometheus text format, with the
// label instance that tells it from others. Gauges need their TYPE. Series that are
// not metrics of functions, that are no valid ones, or that are too many are left out
// and counted. ended says that the process pushes no more. It returns how many series
// were read.
func (p *Pushed) Take(body io.Reader, ended bool, now time.Time) (int, error) {
	counters := map[string]map[series]float64{}
	gauges := map[string]map[series]float64{}
	kinds := map[string]string{}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 64<<10)
	read, refused := 0, 0
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			if name, kind, ok := parseType(text); ok {
				kinds[name] = kind
			}
			continue
		}
		s, ok := parseLine(text, kinds)
		if !ok || read >= mostSeries {
			refused++
			continue
		}
		into, key := counters, s.from
		if s.gauge {
			into, key = gauges, s.family()
		}
		if into[key] == nil {
			into[key] = map[series]float64{}
		}
		into[key][s.series] = s.value
		read++
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fold(now)
	for from, values := range counters {
		refused += p.take(from, values, now)
		if ended && p.instances[from] != nil {
			p.end(from)
		}
	}
	refused += p.set(gauges)
	p.refused += uint64(refused)
	return read, nil
}

// Refused is how many series were left out.
func (p *Pushed) Refused() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// take takes the counters of a process, and returns how many of them were too many.
func (p *Pushed) take(from string, values map[series]float64, now time.Time) (refused int) {
	if p.instances == nil {
		p.instances, p.ended = map[string]*instance{}, map[series]float64{}
	}
	i := p.instances[from]
	if i == nil {
		if len(p.instances) >= mostInstances {
			p.end(p.oldest())
		}
		i = &instance{last: map[series]float64{}}
		p.instances[from] = i
	}
	i.seen = now
	for s, value := range values {
		before, known := i.last[s]
		if !known && len(i.last) >= mostSeries {
			refused++
			continue
		}
		if value < before {
			// Another process under the same name begins anew.
			p.add(s, before)
		}
		i.last[s] = value
		if !known {
			p.held++
		}
	}
	for p.held > mostHeld {
		p.end(p.oldest())
	}
	return refused
}

// set takes gauges. Whoever tells of a family has counted all of it, so that what it
// does not name is no more.
func (p *Pushed) set(gauges map[string]map[series]float64) (refused int) {
	if p.gauges == nil {
		p.gauges = map[string]map[series]float64{}
	}
	for family, values := range gauges {
		delete(p.gauges, family)
		have := len(values)
		for _, others := range p.gauges {
			have += len(others)
		}
		if have > mostSeries {
			refused += len(values)
			continue
		}
		p.gauges[family] = values
	}
	return refused
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
		if seen.IsZero() || i.seen.Before(seen) {
			name, seen = from, i.seen
		}
	}
	return name
}

func (p *Pushed) end(from string) {
	last := p.instances[from].last
	for s, value := range last {
		p.add(s, value)
	}
	p.held -= len(last)
	delete(p.instances, from)
}

func (p *Pushed) add(s series, value float64) {
	if _, known := p.ended[s]; known || len(p.ended) < mostSeries {
		p.ended[s] += value
	} else {
		p.refused++
	}
}

// sums are the counters of all processes together.
func (p *Pushed) sums() map[series]float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total()
}

func (p *Pushed) total() map[series]float64 {
	sums := make(map[series]float64, len(p.ended))
	for s, value := range p.ended {
		sums[s] += value
	}
	for _, i := range p.instances {
		for s, value := range i.last {
			sums[s] += value
		}
	}
	return sums
}

// all are the sums and the gauges, and which families are gauges.
func (p *Pushed) all() (values map[series]float64, gauges map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	values, gauges = p.total(), map[string]bool{}
	for s := range values {
		if p.gauges[s.family()] != nil {
			delete(values, s) // somebody pushed it without its TYPE
		}
	}
	for family, told := range p.gauges {
		gauges[family] = true
		for s, value := range told {
			values[s] = value
		}
	}
	return values, gauges
}

var delivery = regexp.MustCompile(`^function="([^"]+)",outcome="([^"]+)"$`)

// Deliveries counts the events that each function was delivered, by outcome.
func (p *Pushed) Deliveries() map[string]map[string]uint64 {
	counts := map[string]map[string]uint64{}
	for s, value := range p.sums() {
		m := delivery.FindStringSubmatch(s.labels)
		if s.name != deliveriesTotal || m == nil {
			continue
		}
		if counts[m[1]] == nil {
			counts[m[1]] = map[string]uint64{}
		}
		counts[m[1]][m[2]] += uint64(value)
	}
	return counts
}
