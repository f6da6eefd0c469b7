package stream

import (
	"errors"
	"time"
)

// Errors of Subscribe: the hub has the maximum of clients, the address has its maximum, and the hub is closed.
var (
	ErrFull           = errors.New("the stream has as many clients as it may have")
	ErrFullForAddress = errors.New("the stream has as many clients from this address as it may have")
	ErrClosed         = errors.New("the stream is shutting down")
)

// Limits bound the clients of a hub.
type Limits struct {
	Clients           int
	ClientsPerAddress int
	// Heartbeat is the interval of heartbeats to an idle client.
	Heartbeat time.Duration
}

// admit returns an error if the hub takes no other client, or none of this address. The caller holds h.mu.
func (h *Hub) admit(address string) error {
	switch {
	case h.closed:
		return ErrClosed
	case len(h.clients) >= h.limits.Clients:
		h.stats.Refused++
		return ErrFull
	case h.addresses[address] >= h.limits.ClientsPerAddress:
		h.stats.Refused++
		return ErrFullForAddress
	default:
		return nil
	}
}

// Limits that no setting changes.
const (
	// backlog is the number of queued frames beyond which a client gets a new snapshot.
	backlog = 64
	// maxMissed is the number of missed frames beyond which a client cannot resume.
	maxMissed = 1024
	// keptFrames and keptBytes bound the frames that are kept for clients that resume.
	keptFrames = 4096
	keptBytes  = 16 << 20
)
