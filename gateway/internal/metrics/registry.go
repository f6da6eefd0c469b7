// Package metrics declares and writes the gateway's metrics (gateway.go), those of its inventory, requests and process, and the metrics that
// functions push, in the Prometheus text format with HELP and TYPE.
package metrics

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Kinds of metric.
const (
	Counter   = "counter"
	Gauge     = "gauge"
	Histogram = "histogram"
)

// Registry holds metric families in the order of their declaration.
type Registry struct {
	// Fresh is the time for which Collected families are not collected again.
	Fresh time.Duration

	mu       sync.Mutex
	families []*Family
}

// Family holds all series of one name.
type Family struct {
	Name, Help, Kind string

	labels  []string
	buckets []float64
	set     *metrics.Set
	series  sync.Map
	collect func(add func(value float64, labels ...string))

	mu        sync.Mutex
	collected []byte
	at        time.Time
}

// Counter declares a family of counters with these labels.
func (r *Registry) Counter(name, help string, labels ...string) *Family {
	return r.add(&Family{Name: name, Help: help, Kind: Counter, labels: labels, set: metrics.NewSet()})
}

// Histogram declares a family of histograms with these upper bounds and labels.
func (r *Registry) Histogram(name, help string, buckets []float64, labels ...string) *Family {
	return r.add(&Family{Name: name, Help: help, Kind: Histogram, labels: labels, buckets: buckets, set: metrics.NewSet()})
}

// Collected declares a family that is read at each scrape: collect calls add once for each series, with a value for each label.
func (r *Registry) Collected(kind, name, help string, labels []string, collect func(add func(value float64, labels ...string))) *Family {
	return r.add(&Family{Name: name, Help: help, Kind: kind, labels: labels, collect: collect})
}

func (r *Registry) add(f *Family) *Family {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.families = append(r.families, f)
	return f
}

// Families lists all families.
func (r *Registry) Families() []*Family {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Family(nil), r.families...)
}

// Count returns the counter with these values of the family's labels.
func (f *Family) Count(values ...string) *metrics.Counter {
	name := f.seriesName(values)
	if c, ok := f.series.Load(name); ok {
		return c.(*metrics.Counter)
	}
	c := f.set.GetOrCreateCounter(name)
	f.series.Store(name, c)
	return c
}

// Observe returns the histogram with these values of the family's labels.
func (f *Family) Observe(values ...string) *metrics.PrometheusHistogram {
	name := f.seriesName(values)
	if h, ok := f.series.Load(name); ok {
		return h.(*metrics.PrometheusHistogram)
	}
	h := f.set.GetOrCreatePrometheusHistogramExt(name, f.buckets)
	f.series.Store(name, h)
	return h
}

func (f *Family) seriesName(values []string) string {
	if len(values) != len(f.labels) {
		panic(fmt.Sprintf("metric %s has the labels %v, got %d values", f.Name, f.labels, len(values)))
	}
	return string(appendSeries(make([]byte, 0, 128), f.Name, f.labels, values))
}

func appendSeries(b []byte, name string, labels, values []string) []byte {
	b = append(b, name...)
	for i, label := range labels {
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = append(b, label...)
		b = append(b, `="`...)
		b = append(b, escape.Replace(values[i])...)
		b = append(b, '"')
	}
	if len(labels) > 0 {
		b = append(b, '}')
	}
	return b
}

// escape escapes a label's value for the text format.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// Write writes all families.
func (r *Registry) Write(w io.Writer) {
	now := time.Now()
	for _, f := range r.Families() {
		_, _ = fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", f.Name, f.Help, f.Name, f.Kind)
		if f.set != nil {
			f.set.WritePrometheus(w)
			continue
		}
		_, _ = w.Write(f.gather(now, r.Fresh))
	}
}

// gather returns the series of a collected family.
func (f *Family) gather(now time.Time, fresh time.Duration) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.at.IsZero() && now.Sub(f.at) < fresh {
		return f.collected
	}
	var b []byte
	f.collect(func(value float64, values ...string) {
		b = appendSeries(b, f.Name, f.labels, values)
		b = append(b, ' ')
		b = strconv.AppendFloat(b, value, 'g', -1, 64)
		b = append(b, '\n')
	})
	f.collected, f.at = b, now
	return b
}
