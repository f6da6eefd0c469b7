package broker

import "time"

const (
	// maxEvent is the maximum size of a request or reply. It is the default of Kafka brokers.
	maxEvent = 1 << 20
	// maxHeld is the number of unfinished deliveries at which the ingress answers 503.
	maxHeld = 100_000
	// maxInFlight is the number of concurrent requests to a Trigger's subscriber.
	maxInFlight = 100
	// maxHops is how many times an event and its replies may pass the broker.
	maxHops = 255
	// dialTimeout bounds the time until a subscriber accepts a connection.
	dialTimeout = 5 * time.Second
)
