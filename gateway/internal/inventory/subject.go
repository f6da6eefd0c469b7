package inventory

import (
	"strings"

	"github.com/vitistack/stack/events"
)

// RefOfSubject parses the subject of an event, which is an object's path in the Kubernetes API. The result is empty for any other
// text, and has no kind if the gateway does not keep objects of that kind.
func RefOfSubject(subject string) events.Ref {
	parts := strings.Split(strings.TrimPrefix(subject, "/apis/"), "/")
	kinds := map[string]Kind{}
	for _, k := range Kinds {
		kinds[strings.ToLower(string(k))+"s"] = k
	}
	switch {
	case len(parts) == 6 && parts[2] == "namespaces":
		return events.Ref{APIVersion: parts[0] + "/" + parts[1], Namespace: parts[3], Kind: string(kinds[parts[4]]), Name: parts[5]}
	case len(parts) == 4:
		return events.Ref{APIVersion: parts[0] + "/" + parts[1], Kind: string(kinds[parts[2]]), Name: parts[3]}
	default:
		return events.Ref{}
	}
}
