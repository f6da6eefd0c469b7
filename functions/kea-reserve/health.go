package main

import (
	"context"
	"sync"
	"time"

	apibackend "github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// publishTo returns a Report that publishes whether each Kea server answers. A reason that says nothing about the server
// publishes nothing.
func publishTo(reporter *backendhealth.Reporter) kea.Report {
	return func(ctx context.Context, role string, began time.Time, err error) {
		found := backendhealth.Healthy(began, time.Now())
		if err != nil {
			e := kea.Classify(err)
			var ok bool
			if found, ok = backendhealth.FindingOf(e.Reason, e.Message, began, time.Now()); !ok {
				return
			}
		}
		reporter.Record(ctx, apibackend.Kea, role, found)
	}
}

// checkHealth removes the reports of servers that are no longer configured, and sends each server a command if the round of
// resync sends it no other.
func (f *function) checkHealth(ctx context.Context) error {
	roles := make([]string, len(f.clients))
	for i, c := range f.clients {
		roles[i] = c.Role
	}
	if err := f.reporter.Retain(ctx, apibackend.Kea, roles...); err != nil || !f.shared {
		return err
	}
	var pings sync.WaitGroup
	for _, c := range f.clients {
		pings.Go(func() { _ = c.Ping(ctx) }) // its error is in the report
	}
	pings.Wait()
	return nil
}
