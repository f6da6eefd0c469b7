package webhook

import (
	"fmt"
	"net/url"
	"time"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/config"
)

// BrokerName is the name of the Broker among the endpoints.
const BrokerName = "broker"

// Endpoints returns the endpoints of a configuration: the Broker if its address is configured, and the webhooks. An invalid secret is
// an error that names its key.
func Endpoints(c *config.Config) ([]Endpoint, error) {
	var all []Endpoint
	if c.SinkURL != "" {
		all = append(all, Endpoint{
			Name: BrokerName, URL: c.SinkURL, Timeout: 10 * time.Second, Retries: -1,
			Types: []string{"infrastructure.*"}, FirstDelay: 500 * time.Millisecond, Identify: events.Identify, Inside: true,
		})
	}
	if !c.Webhooks.Enabled {
		return all, nil
	}
	for i, w := range c.Webhooks.Endpoints {
		e := Endpoint{
			Name: endpointName(i, w.URL), URL: w.URL, Timeout: time.Duration(w.Timeout), Retries: *w.Retries,
			Types: w.Types, Namespaces: w.Namespaces, FirstDelay: 5 * time.Second,
		}
		if w.Secret != "" {
			var err error
			if e.Key, err = NewSigningKey(w.Secret, w.SecretFile); err != nil {
				return nil, fmt.Errorf("read configuration: key handlers.webhook.endpoints: endpoint %d: secret: %w", i, err)
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// endpointName returns the name of an endpoint in logs and metrics. It leaves out the path, which may be secret; its index
// distinguishes two endpoints of one host.
func endpointName(index int, address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Sprintf("webhook-%d", index)
	}
	return fmt.Sprintf("webhook-%d-%s", index, u.Host)
}
