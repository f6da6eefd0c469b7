// Package gatewaysignature verifies that the gateway has signed a decision from outside the cluster, such as an approval or the
// answer of an IPAM. The handlers of bootstrap-talos and provision-network call it before they act on such an event. The public
// keys are in the ConfigMap that the gateway writes (gateway/internal/eventsigner).
package gatewaysignature

import (
	"context"
	"fmt"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/dsse"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Verify returns nil if the gateway has signed an event with a key that is accepted now, and a permanent error otherwise.
// Other errors are those of reading the keys.
func Verify(ctx context.Context, c *kube.Client, in event.Event) error {
	found, err := c.PlatformConfigMap(ctx, dsse.ConfigMapName)
	if err != nil {
		return fmt.Errorf("read the keys that sign events: %w", err)
	}
	if err := dsse.Verify(in, dsse.ParsePublicKeys(found)); err != nil {
		return events.Permanent(fmt.Errorf("event %s of type %s is not from the gateway (%w): send it to POST /api/v1/events of the gateway, with a key that has the scope events", in.ID(), in.Type(), err))
	}
	return nil
}
