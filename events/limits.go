package events

import "time"

// Limits of the runtime.
const (
	// maxEventBytes is the largest event that is read. Brokers refuse larger ones
	// too: Kafka's default is the same.
	maxEventBytes = 1 << 20
	// maxErrorBytes bounds the text of an error: Knative's dispatcher dies of bodies
	// of more than 768 bytes.
	maxErrorBytes = 512
	// maxHeaderBytes bounds the attributes of an event in binary mode.
	maxHeaderBytes = 64 << 10
	// headerTimeout is for a sender to get its headers across.
	headerTimeout = 5 * time.Second
	// readTimeout is for a sender to get its whole event across.
	readTimeout = 15 * time.Second
	// deliveryTimeout is the timeout of the handler for one delivery. It is below the
	// timeouts of the shipped Triggers, so that the function answers first.
	deliveryTimeout = 25 * time.Second
	// pushPause is from the first delivery until what is counted is pushed.
	pushPause = 10 * time.Second
	// pushTimeout is for the gateway to take a push.
	pushTimeout = 2 * time.Second
	// shutdownExtra is for deliveries to end after SIGTERM, beyond their own time.
	shutdownExtra = 3 * time.Second
	// shutdownQuiet is how long no request may arrive after SIGTERM before the
	// listener closes.
	shutdownQuiet = 20 * time.Millisecond
)
