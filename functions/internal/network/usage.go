package network

import (
	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// UsageManager is the field manager of the writes that only count the users of a NetworkNamespace.
const UsageManager = "provision-network-usage"

// IsUsageEvent reports whether an event carries a NetworkNamespace whose last change was a count of its users.
// No other object waits for that, and each earlier change has an event of its own.
func IsUsageEvent(in event.Event) bool {
	nn := &v1alpha2.NetworkNamespace{}
	return events.ObjectFrom(in, nn) && kube.IsOwnStatusWrite(nn, UsageManager, false)
}
