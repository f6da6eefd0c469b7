package nam

import (
	"encoding/json"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
)

// Patterns of the API's fields.
var (
	uidPattern        = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	identifierPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{2,32}$`)
)

const maxRequest = 64 << 10

// readRequest parses the body of a PUT, and rejects fields that the API does not define.
func readRequest(r *http.Request) (Request, *answer) {
	refuse := func(status int, format string, args ...any) (Request, *answer) {
		a := problem(status, format, args...)
		return Request{}, &a
	}
	if !uidPattern.MatchString(r.PathValue("uid")) {
		return refuse(http.StatusBadRequest, "the key of a segment is a UUID")
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, "send application/json")
	}
	var request Request
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxRequest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		return refuse(http.StatusBadRequest, "the body is no request for a segment: %v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return refuse(http.StatusBadRequest, "the body has more than one value")
	}
	if request.Name == "" || len(request.Name) > 253 || request.Namespace == "" || len(request.Namespace) > 63 {
		return refuse(http.StatusBadRequest, "name and namespace are those of a NetworkNamespace")
	}
	for _, id := range []string{request.DatacenterIdentifier, request.SupervisorIdentifier} {
		if id != "" && !identifierPattern.MatchString(id) {
			return refuse(http.StatusBadRequest, "%q is no identifier", id)
		}
	}
	if !knownFamilies(request.IPFamilies) {
		return refuse(http.StatusBadRequest, "ipFamilies are IPv4, IPv6 or both, each once")
	}
	if l := request.IPv4PrefixLength; l != 0 && (l < 8 || l > 30) {
		return refuse(http.StatusBadRequest, "ipv4PrefixLength is from 8 to 30")
	}
	if l := request.IPv6PrefixLength; l != 0 && (l < 16 || l > 126) {
		return refuse(http.StatusBadRequest, "ipv6PrefixLength is from 16 to 126")
	}
	return request, nil
}

func knownFamilies(families []string) bool {
	seen := map[string]bool{}
	for _, f := range families {
		if (f != "IPv4" && f != "IPv6") || seen[f] {
			return false
		}
		seen[f] = true
	}
	return len(families) > 0
}

func sameRequest(a, b Request) bool {
	one, two := slices.Sorted(slices.Values(a.IPFamilies)), slices.Sorted(slices.Values(b.IPFamilies))
	a.IPFamilies, b.IPFamilies = nil, nil
	return slices.Equal(one, two) && a.Name == b.Name && a.Namespace == b.Namespace && a.DatacenterIdentifier == b.DatacenterIdentifier &&
		a.SupervisorIdentifier == b.SupervisorIdentifier && a.IPv4PrefixLength == b.IPv4PrefixLength && a.IPv6PrefixLength == b.IPv6PrefixLength
}

func orElse(n, standard int) int {
	if n == 0 {
		return standard
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Lies are well-formed answers with wrong values, by the names of their faults.
var Lies = map[string]func(answer) answer{
	"lie-uid":      lie(func(s *Segment) { s.UID = "00000000-0000-0000-0000-000000000000" }),
	"lie-hostbits": lie(func(s *Segment) { s.IPv4Prefix = "10.99.0.7/24" }),
	"lie-prefix":   lie(func(s *Segment) { s.IPv4Prefix = "10.99.0/24" }),
	"lie-gateway":  lie(func(s *Segment) { s.IPv4Gateway = "192.0.2.1" }),
	"lie-vlan":     lie(func(s *Segment) { vlan := 5000; s.VLANID = &vlan }),
	"lie-state":    lie(func(s *Segment) { s.State = "perfect" }),
	"lie-empty":    lie(func(s *Segment) { s.IPv4Prefix, s.IPv4Gateway, s.IPv6Prefix, s.IPv6Gateway = "", "", "", "" }),
	"lie-size":     lie(func(s *Segment) { s.IPv4Prefix, s.IPv4Gateway = "10.99.0.0/29", "10.99.0.1" }),
	"lie-dns":      lie(func(s *Segment) { s.DNS = []string{"resolver"} }),
	"lie-early":    lie(func(s *Segment) { s.State = stateReady }),
	"lie-taken":    lie(func(s *Segment) { s.IPv4Prefix, s.IPv4Gateway = taken.prefix, taken.gateway; s.VLANID = &taken.vlan }),
	"fail": lie(func(s *Segment) {
		*s = Segment{UID: s.UID, State: "error", Message: "the switch does not answer: call the network team"}
	}),
}

// taken is the segment that lie-taken returns to every request.
var taken = struct {
	prefix, gateway string
	vlan            int
}{"10.98.0.0/24", "10.98.0.1", 998}

func lie(change func(*Segment)) func(answer) answer {
	return func(a answer) answer {
		if s, ok := a.body.(Segment); ok {
			change(&s)
			a.body, a.status = s, http.StatusOK
		}
		return a
	}
}
