package auth

import (
	"fmt"
	"strings"
)

// Scopes is the set of what a caller may do.
type Scopes uint8

const (
	// ScopeRead allows reading.
	ScopeRead Scopes = 1 << iota
	// ScopeEvents allows sending events.
	ScopeEvents
	// ScopeWrite allows every change that the API offers. It includes ScopeEvents.
	ScopeWrite
)

// Has reports whether s contains all wanted scopes.
func (s Scopes) Has(wanted Scopes) bool {
	if s&ScopeWrite != 0 {
		s |= ScopeEvents
	}
	return s&wanted == wanted
}

// Names returns the scopes as keys and responses write them.
func (s Scopes) Names() []string {
	var names []string
	for _, known := range []struct {
		scope Scopes
		name  string
	}{{ScopeRead, "read"}, {ScopeWrite, "write"}, {ScopeEvents, "events"}} {
		if s.Has(known.scope) {
			names = append(names, known.name)
		}
	}
	return names
}

func parseScopes(names []string) (Scopes, error) {
	var s Scopes
	for _, name := range names {
		switch strings.TrimSpace(name) {
		case "read":
			s |= ScopeRead
		case "write":
			s |= ScopeWrite
		case "events":
			s |= ScopeEvents
		default:
			return 0, fmt.Errorf("scope %q is unknown: write read, write or events", name)
		}
	}
	return s, nil
}
