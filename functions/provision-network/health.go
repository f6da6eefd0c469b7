package main

import (
	"context"
	"errors"
	"time"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// servers are the providers that are reached by HTTP, so that their health is measured.
var servers = []string{v1alpha2.ProviderNAM, v1alpha2.ProviderNetBox}

// publishTo returns a function that publishes whether the server of a provider answers, after each request. named is how
// messages name the server.
func publishTo(reporter *backendhealth.Reporter, name string, named provider.Backend) func(ctx context.Context, began time.Time, err error) {
	return func(ctx context.Context, began time.Time, err error) {
		if found, ok := findingOf(named, began, time.Now(), err); ok {
			reporter.Record(ctx, name, "", found)
		}
	}
}

// findingOf returns what the error of a request shows of the server:
//
//	nil, Conflict, Rejected   healthy, because the API has answered
//	NotFound, Throttled       nothing: an object may be missing, and a proxy may throttle
//	any other                 what its reason says about the server, if anything
func findingOf(named provider.Backend, began, ended time.Time, err error) (backendhealth.Finding, bool) {
	if err == nil || provider.IsKind(err, httpclient.Conflict) || provider.IsKind(err, httpclient.Rejected) {
		return backendhealth.Healthy(began, ended), true
	}
	var e provider.Error
	if provider.IsKind(err, httpclient.NotFound) || !errors.As(named.RequestError(err), &e) {
		return backendhealth.Finding{}, false
	}
	return backendhealth.FindingOf(e.Reason, e.Message, began, ended)
}

// checkHealth removes the reports of servers that are no longer configured, and probes the servers for which a round of resync sends no
// other request.
func (f *function) checkHealth(ctx context.Context) error {
	for _, name := range servers {
		prober, configured := f.provider(name).(provider.Prober)
		if !configured {
			if err := f.reporter.Retain(ctx, name); err != nil {
				return err
			}
			continue
		}
		if _, lists := f.provider(name).(provider.Lister); !lists || f.sharedNetBox {
			_ = prober.Probe(ctx) // its error is in the report
		}
	}
	return nil
}
