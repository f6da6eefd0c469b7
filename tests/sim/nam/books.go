package nam

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"

	"go4.org/netipx"
)

// find returns a segment that is not released, or nil.
func (s *Server) find(uid string) *record {
	r := s.segments[uid]
	if r != nil && !r.GoneAt.IsZero() && !s.options.Now().Before(r.GoneAt) {
		delete(s.segments, uid)
		return nil
	}
	return r
}

const (
	statePending  = "pending"
	stateReady    = "ready"
	stateDeleting = "deleting"
)

// shownSegment returns the segment in its present state. Before it is ready it has no values.
func (s *Server) shownSegment(r *record) Segment {
	shown := r.Segment
	switch {
	case !r.GoneAt.IsZero():
		shown.State = stateDeleting
	case s.options.Now().Before(r.ReadyAt):
		return Segment{UID: shown.UID, ID: shown.ID, State: statePending}
	default:
		shown.State = stateReady
	}
	return shown
}

// allot allocates a segment of the first free prefixes.
func (s *Server) allot(uid string, request Request) (*record, *answer) {
	vlan, ok := s.freeVLAN(request.DatacenterIdentifier)
	if !ok {
		a := problem(http.StatusUnprocessableEntity, "data centre %s has no free VLAN", request.DatacenterIdentifier)
		return nil, &a
	}
	made := Segment{UID: uid, ID: "nam-" + uid[:8], VLANID: &vlan}
	for _, family := range request.IPFamilies {
		parent, bits := s.options.IPv4, orElse(request.IPv4PrefixLength, 24)
		if family == "IPv6" {
			parent, bits = s.options.IPv6, orElse(request.IPv6PrefixLength, 64)
		}
		prefix, ok := s.freePrefix(parent, bits)
		if !ok {
			a := problem(http.StatusUnprocessableEntity, "%s has no free /%d", parent, bits)
			return nil, &a
		}
		gateway := prefix.Addr().Next()
		if family == "IPv6" {
			made.IPv6Prefix, made.IPv6Gateway = prefix.String(), gateway.String()
		} else {
			made.IPv4Prefix, made.IPv4Gateway = prefix.String(), gateway.String()
			made.DNS = []string{gateway.String()}
		}
	}
	return &record{Request: request, Segment: made, ReadyAt: s.options.Now().Add(s.options.Slow)}, nil
}

func (s *Server) freeVLAN(datacenter string) (int, bool) {
	taken := map[int]bool{}
	for _, r := range s.segments {
		if r.Request.DatacenterIdentifier == datacenter && r.Segment.VLANID != nil {
			taken[*r.Segment.VLANID] = true
		}
	}
	for vlan := firstVLAN; vlan <= lastVLAN; vlan++ {
		if !taken[vlan] {
			return vlan, true
		}
	}
	return 0, false
}

func (s *Server) freePrefix(parent netip.Prefix, bits int) (netip.Prefix, bool) {
	var b netipx.IPSetBuilder
	b.AddPrefix(parent)
	for _, r := range s.segments {
		for _, text := range []string{r.Segment.IPv4Prefix, r.Segment.IPv6Prefix} {
			if p, err := netip.ParsePrefix(text); err == nil {
				b.RemovePrefix(p)
			}
		}
	}
	set, err := b.IPSet()
	if err != nil {
		return netip.Prefix{}, false
	}
	prefix, _, ok := set.RemoveFreePrefix(uint8(bits))
	return prefix, ok
}

// save saves the segments.
func (s *Server) save() error {
	if s.options.State == "" {
		return nil
	}
	content, err := json.Marshal(s.segments)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.options.State+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(s.options.State+".new", s.options.State)
}

// Ensure is PUT for callers in this process. It returns the segment of a key, which the first call
// creates and makes ready at once. It returns an error if no segment can be created.
func (s *Server) Ensure(uid string, request Request) (Segment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(uid)
	if found == nil {
		made, refusal := s.allot(uid, request)
		if refusal != nil {
			return Segment{}, fmt.Errorf("make a segment: %v", refusal.body)
		}
		made.ReadyAt = s.options.Now()
		s.segments[uid], found = made, made
	}
	return s.shownSegment(found), s.save()
}

// Forget is DELETE for callers in this process.
func (s *Server) Forget(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.segments, uid)
	_ = s.save() // an extra record has no effect
}
