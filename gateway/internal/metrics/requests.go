package metrics

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// routeMeter counts the requests of one route.
type routeMeter struct {
	metrics *Gateway
	label   string
	// counts caches the counters of GET and POST by status code, so that a request needs no lookup by name.
	counts    [2][600]atomic.Pointer[metrics.Counter]
	durations [2]atomic.Pointer[metrics.PrometheusHistogram]
}

// Route returns a function that counts the requests of a route, by the route's label. A route has no series before its first request.
func (m *Gateway) Route(label string) func(method string, status int, took time.Duration) {
	r := &routeMeter{metrics: m, label: label}
	return r.observe
}

func (r *routeMeter) observe(method string, status int, took time.Duration) {
	kind := -1
	switch method {
	case http.MethodGet:
		kind = 0
	case http.MethodPost:
		kind = 1
	case http.MethodHead, http.MethodOptions, http.MethodPut, http.MethodDelete, http.MethodPatch:
	default:
		method = "other"
	}
	if kind < 0 || status >= 600 {
		r.metrics.requests.Count(method, r.label, strconv.Itoa(status)).Inc()
		r.metrics.durations.Observe(method, r.label).Update(took.Seconds())
		return
	}
	counter, duration := r.counts[kind][status].Load(), r.durations[kind].Load()
	if counter == nil {
		counter = r.metrics.requests.Count(method, r.label, strconv.Itoa(status))
		r.counts[kind][status].Store(counter)
	}
	if duration == nil {
		duration = r.metrics.durations.Observe(method, r.label)
		r.durations[kind].Store(duration)
	}
	counter.Inc()
	duration.Update(took.Seconds())
}
