package events

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// FindSink asks the cluster for the address of the Broker. An empty address means
// that the Broker has none yet.
type FindSink func(context.Context) (string, error)

// ErrNoSink is the error of a Sink whose address is not known yet. It is transient, so the
// Broker redelivers the event.
var ErrNoSink = errors.New("the Broker's address is not known yet: wait until the Broker is Ready, or let a SinkBinding set K_SINK")

// Sink is the Broker that events are sent to. A SinkBinding writes its address into
// the environment of a process, but only after the first revision of a Knative
// Service has started, and only in namespaces that Knative's webhook serves. A Sink therefore
// asks the cluster if the environment has no address. It is safe for concurrent use.
type Sink struct {
	configured string
	find       FindSink
	found      atomic.Pointer[string]
}

// NewSink returns the sink whose address is configured, which is the value of K_SINK,
// or else found by find. Nothing is asked before the first call of URL.
func NewSink(configured string, find FindSink) *Sink {
	return &Sink{configured: configured, find: find}
}

// URL returns the address of the sink. Its error is ErrNoSink, or says why find failed;
// both are transient. An address that was found is kept until Forget.
func (s *Sink) URL(ctx context.Context) (string, error) {
	if s.configured != "" {
		return s.configured, nil
	}
	if found := s.found.Load(); found != nil {
		return *found, nil
	}
	if s.find == nil {
		return "", ErrNoSink
	}
	url, err := s.find(ctx)
	if err != nil {
		return "", fmt.Errorf("find the Broker's address: %w", err)
	}
	if url == "" {
		return "", ErrNoSink
	}
	s.found.Store(&url)
	return url, nil
}

// Forget drops an address that was found, because an event could not be sent there.
func (s *Sink) Forget() { s.found.Store(nil) }
