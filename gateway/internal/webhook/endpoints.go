package webhook

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
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
			Name: cmp.Or(w.Name, defaultName(w.URL)), URL: w.URL, Timeout: time.Duration(w.Timeout), Retries: *w.Retries,
			Types: w.Types, Namespaces: w.Namespaces, FirstDelay: 5 * time.Second,
		}
		if w.Secret != "" {
			var err error
			if e.Key, err = NewSigningKey(w.Secret, w.SecretFile); err != nil {
				return nil, fmt.Errorf("read configuration: key handlers.webhook.endpoints: endpoint %d: secret: %w", i, err)
			}
		}
		if slices.ContainsFunc(all, func(other Endpoint) bool { return other.Name == e.Name }) {
			return nil, fmt.Errorf("read configuration: key handlers.webhook.endpoints: two endpoints are called %s: write a name of its own for each", e.Name)
		}
		all = append(all, e)
	}
	return all, nil
}

// defaultName returns the name of an endpoint that the configuration does not name. It has the host, and a hash in place of the path,
// which may be secret.
func defaultName(address string) string {
	sum := sha256.Sum256([]byte(address))
	u, err := url.Parse(address)
	if err != nil {
		return "webhook-" + hex.EncodeToString(sum[:4])
	}
	return "webhook-" + u.Host + "-" + hex.EncodeToString(sum[:4])
}
