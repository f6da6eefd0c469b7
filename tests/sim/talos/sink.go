package talos

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	eventsapi "github.com/siderolabs/siderolink/api/events"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/vitistack/stack/tests/sim/underlay"
)

// Pauses after a failed request to the event sink: those of the controller runtime of COSI. EventsSinkController never resets them, so that
// they grow over the life of a boot.
const (
	firstSinkPause   = 500 * time.Millisecond
	longestSinkPause = time.Minute
	sinkPauseFactor  = 1.5
	sinkPauseSpread  = 0.5
)

// followSink sends the events of a boot to the endpoint of the document EventSinkConfig, as machined's EventsSinkController
// (internal/app/machined/pkg/controllers/runtime/events_sink.go) does: all stored events first, in order and one at a time, and each until it is
// accepted. Unlike machined it sends nothing after the end of the boot.
func (b *boot) followSink() {
	sent, pause := 0, firstSinkPause
	for b.ctx.Err() == nil {
		endpoint, from, changed := b.sink()
		if endpoint == "" {
			select {
			case <-b.ctx.Done():
			case <-changed:
			}
			continue
		}
		if b.publishTo(endpoint, from, &sent) == nil {
			continue
		}
		wait := time.Duration(float64(pause) * (1 + sinkPauseSpread*(2*rand.Float64()-1)))
		pause = min(time.Duration(float64(pause)*sinkPauseFactor), longestSinkPause)
		select {
		case <-b.ctx.Done():
		case <-time.After(wait):
		}
	}
}

// sink returns the endpoint of the event sink, empty if there is none, the address of the machine, and a channel that is closed when either may
// have changed.
func (b *boot) sink() (endpoint string, from netip.Addr, changed <-chan struct{}) {
	f := b.node.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.node.config == nil || b.node.boot != b || !b.network.address.IsValid() {
		return "", netip.Addr{}, f.changed
	}
	if configured := b.node.config.Runtime().EventsEndpoint(); configured != nil {
		endpoint = *configured
	}
	return endpoint, b.network.address.Addr(), f.changed
}

// publishTo sends the events after number sent over one connection, until the endpoint or the address changes, or the boot ends. An error is of a
// request that has failed.
func (b *boot) publishTo(endpoint string, from netip.Addr, sent *int) error {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dialFrom(from)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client := eventsapi.NewEventSinkServiceClient(conn)
	for {
		events, grown, stopped := b.events.after(*sent)
		for _, e := range events {
			data := &anypb.Any{TypeUrl: "type.googleapis.com/" + string(e.event.Data.MessageName()), Value: e.event.Data.Value}
			if _, err := client.Publish(b.ctx, &eventsapi.EventRequest{Id: e.event.Id, Data: data, ActorId: e.event.ActorId}); err != nil {
				return err
			}
			*sent = e.number
		}
		current, address, changed := b.sink()
		if stopped || b.ctx.Err() != nil || current != endpoint || address != from {
			return nil
		}
		select {
		case <-b.ctx.Done():
		case <-grown:
		case <-changed:
		}
	}
}

// dialFrom returns a dialer that connects from the address of a machine.
func dialFrom(machine netip.Addr) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		var d net.Dialer
		if local, ok := underlay.Find(machine); ok {
			d.LocalAddr = &net.TCPAddr{IP: local.AsSlice()}
		}
		return d.DialContext(ctx, "tcp", to)
	}
}
