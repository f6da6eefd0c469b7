package history

import (
	"encoding/json"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkEvents measures the cost of events, 8 at a time, in a history in an SQLite file: each from
// the lookup of its object to its delivery.
func BenchmarkEvents(b *testing.B) {
	s, stop := open(b, databases["SQLite"](b))
	defer stop()
	n := 0
	before := processCPU(b)
	for b.Loop() {
		var events sync.WaitGroup
		for range 8 {
			n++
			id := fmt.Sprintf("object-%d", n)
			events.Go(func() { recordEvent(b, s, id) })
		}
		events.Wait()
		now := time.Now()
		due, err := s.Claim(b.Context(), "broker", now, now.Add(time.Minute))
		if err != nil {
			b.Fatal(err)
		}
		for _, d := range due {
			events.Go(func() {
				if err := s.Delivered(b.Context(), d); err != nil {
					b.Error(err)
				}
			})
		}
		events.Wait()
	}
	b.ReportMetric(float64((processCPU(b)-before).Microseconds())/float64(n), "µs-cpu/event")
	b.ReportMetric(0, "ns/op")
}

// recordEvent records an event of a new object.
func recordEvent(b *testing.B, s *Store, id string) {
	known, err := s.Known(b.Context(), id)
	if err == nil {
		known.Kind, known.Document = "Machine", json.RawMessage(`{}`)
		_, err = s.Write(b.Context(), Record{
			Known: &known, Events: []Event{anEvent(id)},
			Deliveries: []Delivery{{Endpoint: "broker", EventID: id, Body: "{}", Due: noon, Created: noon}},
		})
	}
	if err == nil {
		_, err = s.CausedBy(b.Context(), id)
	}
	if err != nil {
		b.Error(err)
	}
}

// processCPU returns the CPU time of this process.
func processCPU(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
