package talos

import (
	"fmt"
	"slices"
	"sync"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// maxEvents is the number of events that a boot stores.
const maxEvents = 1000

// eventLog has the events of a boot, in order.
type eventLog struct {
	mu      sync.Mutex
	events  []loggedEvent
	next    int
	grown   chan struct{}
	stopped bool
	// readers is the number of open streams.
	readers int
}

type loggedEvent struct {
	number int
	at     time.Time
	event  *machineapi.Event
}

func newEventLog() *eventLog { return &eventLog{grown: make(chan struct{})} }

// publish appends an event. actor is the ID of the request that caused it, if any.
func (l *eventLog) publish(payload proto.Message, actor string) {
	e := newEvent(payload, actor)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	l.next++
	l.events = append(l.events, loggedEvent{l.next, time.Now(), e})
	if len(l.events) > maxEvents {
		l.events = slices.Delete(l.events, 0, len(l.events)-maxEvents)
	}
	close(l.grown)
	l.grown = make(chan struct{})
}

// close ends all streams after the published events.
func (l *eventLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.stopped {
		l.stopped = true
		close(l.grown)
	}
}

// read counts the start or end of a stream.
func (l *eventLog) read(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers += n
}

// watched reports whether a client follows the events.
func (l *eventLog) watched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readers > 0
}

// after returns the events after the given number, and a channel that is closed when there are more.
func (l *eventLog) after(number int) (events []loggedEvent, grown <-chan struct{}, stopped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.events {
		if l.events[i].number > number {
			events = slices.Clone(l.events[i:])
			break
		}
	}
	return events, l.grown, l.stopped
}

// begin returns the number after which a stream starts, as the request specifies.
func (l *eventLog) begin(req *machineapi.EventsRequest) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case req.TailEvents < 0:
		return 0
	case req.TailEvents > 0:
		return max(0, l.next-int(req.TailEvents))
	}
	since := time.Now().Add(-time.Duration(req.TailSeconds) * time.Second)
	for _, e := range l.events {
		if (req.TailId != "" && e.event.Id > req.TailId) || (req.TailSeconds > 0 && !e.at.Before(since)) {
			return e.number - 1
		}
	}
	return l.next
}

var eventNumbers struct {
	sync.Mutex
	last uint64
}

// newEvent wraps a payload. IDs sort in the order of events.
func newEvent(payload proto.Message, actor string) *machineapi.Event {
	eventNumbers.Lock()
	eventNumbers.last++
	id := fmt.Sprintf("%08x%012x", time.Now().Unix(), eventNumbers.last)
	eventNumbers.Unlock()
	e := &machineapi.Event{Id: id, ActorId: actor, Data: &anypb.Any{}}
	if payload != nil {
		value, _ := proto.Marshal(payload) // a message without required fields can be encoded
		e.Data = &anypb.Any{TypeUrl: "talos/runtime/" + string(payload.ProtoReflect().Descriptor().FullName()), Value: value}
	}
	return e
}

// Events streams the events, after an initial empty event.
func (a *api) Events(req *machineapi.EventsRequest, out grpc.ServerStreamingServer[machineapi.Event]) error {
	if err := out.Send(newEvent(nil, req.WithActorId)); err != nil {
		return err
	}
	log := a.boot.events
	at := log.begin(req)
	log.read(1)
	defer log.read(-1)
	for {
		events, grown, stopped := log.after(at)
		for _, e := range events {
			at = e.number
			if req.WithActorId != "" && req.WithActorId != e.event.ActorId {
				continue
			}
			if err := out.Send(e.event); err != nil {
				return err
			}
		}
		if stopped {
			return nil
		}
		select {
		case <-out.Context().Done():
			return out.Context().Err()
		case <-grown:
		}
	}
}

// kmsg is the kernel log of a boot. It contains no secrets.
type kmsg struct {
	mu    sync.Mutex
	lines []string
	grown chan struct{}
}

// maxLines is the number of lines in the kernel log.
const maxLines = 1000

func (b *boot) printf(format string, args ...any) {
	line := fmt.Sprintf("kern:    info: [%s]: %s\n", time.Now().UTC().Format(time.RFC3339Nano), fmt.Sprintf(format, args...))
	k := b.kmsg
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lines) < maxLines {
		k.lines = append(k.lines, line)
	}
	if k.grown != nil {
		close(k.grown)
		k.grown = nil
	}
}

// from returns the lines from an index on, and a channel that is closed when there are more.
func (k *kmsg) from(at int) ([]string, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.grown == nil {
		k.grown = make(chan struct{})
	}
	return slices.Clone(k.lines[min(at, len(k.lines)):]), k.grown
}
