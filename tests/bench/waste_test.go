package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/audit"
	"github.com/vitistack/stack/tests/stand/engine"
)

// logged is what the log line of a delivery has of it.
type logged struct {
	Timestamp time.Time `json:"timestamp"`
	Function  string    `json:"function"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Duration  string    `json:"duration"`
	Outcome   string    `json:"outcome"`
	Reads     int       `json:"reads"`
	Writes    int       `json:"writes"`
	EventType string    `json:"eventType"`
}

// began returns when the delivery was received.
func (l logged) began() time.Time {
	took, _ := time.ParseDuration(l.Duration) // a line without it counts at its end
	return l.Timestamp.Add(-took)
}

// object names the object of the event as the API server's audit log does.
func (l logged) object() string {
	return strings.ToLower(l.Kind) + "s/" + l.Namespace + "/" + l.Name
}

// deliveries counts the deliveries of one function by what they were good for. One delivery may be
// in several counts.
type deliveries struct {
	all int
	// idle have sent requests and written nothing. free have sent no request.
	idle, free int
	// redelivered have failed, so the Broker delivers their event again.
	redelivered int
	// own are about an object that the function itself has written last.
	own int
}

// deliveriesSince counts the deliveries of each function since a time, from its log and the audit log.
func deliveriesSince(b *testing.B, e *engine.Engine, since time.Time) map[string]deliveries {
	b.Helper()
	written := map[string][]audit.Request{}
	for _, r := range e.Requests(since) {
		if r.Writes() {
			key := r.ObjectRef.Resource + "/" + r.ObjectRef.Namespace + "/" + r.ObjectRef.Name
			written[key] = append(written[key], r)
		}
	}
	counts := map[string]deliveries{}
	for _, l := range readDeliveries(b, e, since) {
		c := counts[l.Function]
		c.all++
		switch {
		case l.Outcome == "retry":
			c.redelivered++
		case l.Writes > 0:
		case l.Reads > 0:
			c.idle++
		default:
			c.free++
		}
		if lastWriter(written[l.object()], l.began()) == l.Function {
			c.own++
		}
		counts[l.Function] = c
	}
	return counts
}

// lastWriter returns the function that has sent the last write before a time, which may be none.
func lastWriter(writes []audit.Request, before time.Time) string {
	var last audit.Request
	for _, r := range writes {
		if r.Received.Before(before) && !r.Received.Before(last.Received) {
			last = r
		}
	}
	return last.Function()
}

// readDeliveries reads the lines of deliveries that functions have received since a time.
func readDeliveries(b *testing.B, e *engine.Engine, since time.Time) (all []logged) {
	b.Helper()
	paths, _ := filepath.Glob(filepath.Join(e.Dir, "logs", "*.log"))
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var l logged
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Outcome != "" && l.EventType != "" && !l.began().Before(since) {
				all = append(all, l)
			}
		}
		_ = file.Close()
	}
	return all
}

// reportWaste reports, for each of n objects, the requests of each function by verb and resource, and its
// deliveries by what they were good for.
func reportWaste(b *testing.B, e *engine.Engine, since time.Time, thing string, n int) {
	b.Helper()
	const least = 0.05
	each := map[string]float64{}
	for _, r := range e.Requests(since) {
		if f := r.Function(); f != "" && f != "event-source" && f != "gateway" {
			each[fmt.Sprintf("%s:%s:%s-requests/%s", f, r.Verb, r.Resource(), thing)] += 1 / float64(n)
		}
	}
	for unit, value := range each {
		if value >= least {
			b.ReportMetric(value, unit)
		}
	}
	for name, d := range deliveriesSince(b, e, since) {
		for what, count := range map[string]int{"all": d.all, "idle": d.idle, "free": d.free, "redelivered": d.redelivered, "own": d.own} {
			if value := float64(count) / float64(n); float64(d.all)/float64(n) >= least {
				b.ReportMetric(value, fmt.Sprintf("%s:%s-deliveries/%s", name, what, thing))
			}
		}
	}
}
