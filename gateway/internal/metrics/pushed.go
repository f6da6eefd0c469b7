package metrics

import (
	"bufio"
	"cmp"
	"fmt"
	"hash/maphash"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Pushed sums the counters of short-lived processes. A process pushes its totals since its start; its last push counts after its end.
// Gauges have the value that any process has last changed, until no process has pushed them for gaugeSilence. The zero value is ready
// for use.
type Pushed struct {
	mu sync.Mutex
	// ended are the sums of the processes that have ended.
	ended     map[series]float64
	instances map[string]*instance
	// held is the number of series of all instances.
	held int
	// gauges are by family.
	gauges  map[string]gauge
	refused uint64
}

type instance struct {
	last map[series]float64
	seen time.Time
	// pushed are the digests of the gauges that the process has pushed, by family.
	pushed map[string]uint64
}

// gauge is a family of gauges as one process has pushed it.
type gauge struct {
	values map[series]float64
	seen   time.Time
}

// Bounds of pushed metrics.
const (
	mostInstances = 1000
	// maxSeries bounds the series of one process, of all ended processes, and of gauges.
	maxSeries = 5000
	// maxHeld bounds the series of all processes.
	maxHeld = 50000
	// maxLength bounds the bytes of a series with its labels and value.
	maxLength = 1024
	// silence is the time without a push after which a process counts as ended. If it pushes again later, it counts twice.
	silence = 24 * time.Hour
	// gaugeSilence is the time without a push after which a gauge is dropped. Every full round of resync has them pushed.
	gaugeSilence = time.Hour
)

// pointInTime ends the names of gauges that stay true although nothing pushes them, such as the time of the last full round.
const pointInTime = "_timestamp_seconds"

// Take reads the metrics of a process in the Prometheus text format, with a label instance that identifies the process. Gauges need
// their TYPE. Series that are no metrics of functions, invalid, or too many are refused and counted. ended reports that the process
// has ended. Take returns the number of series that it read.
func (p *Pushed) Take(body io.Reader, ended bool, now time.Time) (int, error) {
	counters := map[string]map[series]float64{}
	gauges := map[string]map[series]float64{}
	kinds := map[string]string{}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 64<<10)
	read, refused, process := 0, 0, ""
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			if name, kind, ok := parseType(text); ok {
				kinds[name] = kind
			}
			continue
		}
		s, ok := parseLine(text, kinds)
		if !ok || read >= maxSeries {
			refused++
			continue
		}
		into, key := counters, s.from
		process = cmp.Or(process, s.from)
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
	}
	refused += p.set(process, gauges, now)
	for from := range counters {
		if ended && p.instances[from] != nil {
			p.end(from)
		}
	}
	p.refused += uint64(refused)
	return read, nil
}

// Refused returns the number of refused series.
func (p *Pushed) Refused() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused
}

// take stores the counters of a process, and returns how many exceed the bounds.
func (p *Pushed) take(from string, values map[series]float64, now time.Time) (refused int) {
	if p.instances == nil {
		p.instances, p.ended = map[string]*instance{}, map[series]float64{}
	}
	i := p.instances[from]
	if i == nil {
		if len(p.instances) >= mostInstances {
			p.end(p.oldest())
		}
		i = &instance{last: map[series]float64{}, pushed: map[string]uint64{}}
		p.instances[from] = i
	}
	i.seen = now
	for s, value := range values {
		before, known := i.last[s]
		if !known && len(i.last) >= maxSeries {
			refused++
			continue
		}
		if value < before {
			// Another process with the same name starts at zero.
			p.add(s, before)
		}
		i.last[s] = value
		if !known {
			p.held++
		}
	}
	for p.held > maxHeld {
		p.end(p.oldest())
	}
	return refused
}

// set stores gauges of a process. A push of a family is complete: series that it does not contain are removed. A family that is as the
// same process has pushed it before is left alone, because another process may have counted since.
func (p *Pushed) set(from string, gauges map[string]map[series]float64, now time.Time) (refused int) {
	if p.gauges == nil {
		p.gauges = map[string]gauge{}
	}
	for family, values := range gauges {
		if i := p.instances[from]; i != nil {
			digest := digestOf(values)
			before, pushed := i.pushed[family]
			if i.pushed[family] = digest; pushed && before == digest && p.gauges[family].values != nil {
				if held := p.gauges[family]; digestOf(held.values) == digest {
					p.gauges[family] = gauge{held.values, now}
				}
				continue
			}
		}
		delete(p.gauges, family)
		have := len(values)
		for _, others := range p.gauges {
			have += len(others.values)
		}
		if have > maxSeries {
			refused += len(values)
			continue
		}
		p.gauges[family] = gauge{values, now}
	}
	return refused
}

var digestSeed = maphash.MakeSeed()

// digestOf returns a number that differs for other series or values, independent of their order.
func digestOf(values map[series]float64) (sum uint64) {
	for s, value := range values {
		sum += maphash.Comparable(digestSeed, struct {
			series
			value float64
		}{s, value})
	}
	return sum
}

// DropStale drops the gauges that no process has pushed for too long, except points in time.
func (p *Pushed) DropStale(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for family, g := range p.gauges {
		if now.Sub(g.seen) > gaugeSilence && !strings.HasSuffix(family, pointInTime) {
			delete(p.gauges, family)
		}
	}
}

// fold ends the processes that have been silent for too long.
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
	if _, known := p.ended[s]; known || len(p.ended) < maxSeries {
		p.ended[s] += value
	} else {
		p.refused++
	}
}

// sums returns the counters of all processes.
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

// all returns the sums and the gauges, and the families that are gauges.
func (p *Pushed) all() (values map[series]float64, gauges map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	values, gauges = p.total(), map[string]bool{}
	for s := range values {
		if p.gauges[s.family()].values != nil {
			delete(values, s) // a process pushed the family without its TYPE
		}
	}
	for family, pushed := range p.gauges {
		gauges[family] = true
		for s, value := range pushed.values {
			values[s] = value
		}
	}
	return values, gauges
}

var delivery = regexp.MustCompile(`^function="([^"]+)",outcome="([^"]+)"$`)

// Deliveries returns the number of deliveries by function and outcome.
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
