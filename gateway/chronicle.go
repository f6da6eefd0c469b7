package main

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/gateway/internal/announce"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/watch"
	"github.com/vitistack/stack/gateway/internal/webhook"
)

// brokerName is the Broker among the endpoints that are told of events.
const brokerName = "broker"

// patience is how long a change waits for the Broker to tell of it.
const patience = 2 * time.Second

// keepHistory sets up what records and tells events.
func (g *gateway) keepHistory() error {
	database := g.config.Database
	if !g.config.Handlers.Database {
		database.URL = history.MemoryURL
	}
	var err error
	if g.history, err = history.Open(&database, g.log.With("component", "history")); err != nil {
		return err
	}
	endpoints, err := endpointsOf(g.config)
	if err != nil {
		return err
	}
	g.deliverer = &webhook.Deliverer{
		History: g.history, Endpoints: endpoints, Log: g.log.With("component", "webhook"), Outbound: outbound.FromEnvironment(),
		Count: func(endpoint, outcome string) { g.metrics.deliveries.Count(endpoint, outcome).Inc() },
	}
	wait := time.Duration(0)
	if g.config.SinkURL != "" {
		wait = patience
	}
	g.announcer = announce.New(announce.Options{
		Store: g.store, History: g.history, Tell: g.announced, Patience: wait, Log: g.log.With("component", "events"),
		Synced: func(kind inventory.Kind) bool { return g.progress()[kind].State == watch.Synced },
		Deliveries: func(e event.Event, namespace string, direct bool) []history.Delivery {
			skip := ""
			if direct {
				skip = brokerName
			}
			return g.deliverer.Plan(e, namespace, skip)
		},
	})
	g.health.database = dependency{mode: g.history.Mode(), check: g.history.Ping, err: history.ErrNotReady}
	return nil
}

// endpointsOf are the Broker and the webhooks.
func endpointsOf(c *config.Config) ([]webhook.Endpoint, error) {
	var all []webhook.Endpoint
	if c.SinkURL != "" {
		all = append(all, webhook.Endpoint{
			Name: brokerName, URL: c.SinkURL, Timeout: 10 * time.Second, Retries: -1,
			Types: []string{"infrastructure.*"}, FirstDelay: 500 * time.Millisecond, Identify: events.Identify, Inside: true,
		})
	}
	if !c.Webhooks.Enabled {
		return all, nil
	}
	for i, w := range c.Webhooks.Endpoints {
		e := webhook.Endpoint{
			Name: webhookName(i, w.URL), URL: w.URL, Timeout: time.Duration(w.Timeout), Retries: *w.Retries,
			Types: w.Types, Namespaces: w.Namespaces, FirstDelay: 5 * time.Second,
		}
		if w.Secret != "" {
			var err error
			if e.Key, err = webhook.NewSigningKey(w.Secret, w.SecretFile); err != nil {
				return nil, fmt.Errorf("read configuration: key handlers.webhook.endpoints: endpoint %d: secret: %w", i, err)
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// webhookName is what an endpoint is called in logs and metrics. Its path may be
// secret; where two endpoints share a host, their places tell them apart.
func webhookName(place int, address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Sprintf("webhook-%d", place)
	}
	return fmt.Sprintf("webhook-%d-%s", place, u.Host)
}

// decodeErrorData reads what a function answered, which Knative passes on in
// base64.
func decodeErrorData(text string) string {
	decoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !utf8.Valid(decoded) {
		return text
	}
	return string(decoded)
}
