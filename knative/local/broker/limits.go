package broker

import "time"

const (
	// maxEvent is the largest request or reply that is read. It is what Kafka brokers take by default.
	maxEvent = 1 << 20
	// maxHeld is how many deliveries may be unfinished before the ingress answers 503.
	maxHeld = 100_000
	// maxInFlight is how many requests a Trigger's subscriber gets at once.
	maxInFlight = 100
	// maxHops is how many times an event and the replies to it may pass the broker.
	maxHops = 255
	// dialTimeout is how long a subscriber may take to accept a connection.
	dialTimeout = 5 * time.Second
)
